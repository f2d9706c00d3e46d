//! The programs to compare: a table of commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use convoy_lab::wireguard::Implementation;
use convoy_tun::TX_QUEUE_LEN;
use itertools::Itertools as _;

use crate::programs::find;

/// The contender that the others are compared with.
pub(crate) const CONVOY: &str = "convoy";
/// The veth without a tunnel.
pub(crate) const BARE: &str = "bare veth";
/// Suffix of a variant: the same program with Convoy's queue length on its interface.
const VARIANT: &str = "+q";

/// The way in which a contender carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Without a tunnel.
    Bare,
    WireGuard,
    OpenVpn,
    /// Without root: the near end of the traffic runs inside.
    Exec,
    /// Without root: ports of the near end's loopback lead to the far end.
    Ports,
    /// Without root: a SOCKS5 proxy on the near end's loopback.
    Socks,
    /// Without root: a gateway.
    Nat,
    /// A user-mode network between the host and a namespace in which Convoy in TUN mode is a gateway.
    Network,
    /// Clients at both ends that `convoy up` starts, with further lines of their files as arguments.
    Client,
}

/// A set of contenders with their scenes, and a result file of its own; each has its letter in the table of scenes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Set {
    /// WireGuard programs at both ends, and OpenVPN.
    Programs = b'p',
    /// Programs at the near end that need no root.
    Rootless = b'r',
    /// Gateways at the near end.
    Gateways = b'g',
    /// Ways from one client to another.
    Paths = b'h',
}

/// Name, kind, program and arguments. `convoy` is the program that `--convoy` names; others are in the directory of
/// `make peers` or in `PATH`. Places in braces are filled once the namespaces stand.
type Entry = (&'static str, Kind, &'static str, &'static str);

// gotatun and boringtun look up the logged-in user, and exit if there is none. `openvpn-dco` uses the kernel's data
// channel, if the kernel has one.
#[rustfmt::skip]
const PROGRAMS: [Entry; 7] = [
    (CONVOY, Kind::WireGuard, CONVOY, ""),
    ("wireguard-go", Kind::WireGuard, "wireguard", ""),
    ("tailscale", Kind::WireGuard, "wireguard-tailscale", ""),
    ("gotatun", Kind::WireGuard, "gotatun", "--disable-drop-privileges"),
    ("boringtun", Kind::WireGuard, "boringtun-cli", "--disable-drop-privileges"),
    ("openvpn", Kind::OpenVpn, "openvpn", "--disable-dco"),
    ("openvpn-dco", Kind::OpenVpn, "openvpn", ""),
];

/// Convoy without root, for an engine.
macro_rules! up {
    ($engine:literal, $rest:literal) => {
        concat!(
            "up {file} --userspace --foreground --engine ",
            $engine,
            " ",
            $rest
        )
    };
}

#[rustfmt::skip]
const ROOTLESS: [Entry; 8] = [
    (CONVOY, Kind::WireGuard, CONVOY, ""),
    ("exec", Kind::Exec, CONVOY, "exec {file} --"),
    ("ports", Kind::Ports, CONVOY, up!("namespace", "{forwards}")),
    ("ports-smoltcp", Kind::Ports, CONVOY, up!("smoltcp", "{forwards}")),
    ("socks5", Kind::Socks, CONVOY, up!("namespace", "{forwards}")),
    ("wireproxy", Kind::Ports, "wireproxy", "--config {file}"),
    ("wireproxy-socks5", Kind::Socks, "wireproxy", "--config {file}"),
    ("onetun", Kind::Ports, "onetun",
        "--private-key {private-key} --endpoint-public-key {public-key} --endpoint-addr 10.9.0.2:51820 \
         --source-peer-ip 10.8.0.1 --max-transmission-unit 1420 --log warn {onetun-forwards}"),
];

// Targets on the gateway's own links are forbidden by default.
#[rustfmt::skip]
const GATEWAYS: [Entry; 5] = [
    ("masquerade", Kind::WireGuard, CONVOY, ""),
    ("nat", Kind::Nat, CONVOY, up!("namespace", "--nat user --nat-allow 10.99.0.0/24")),
    ("nat-smoltcp", Kind::Nat, CONVOY, up!("smoltcp", "--nat user --nat-allow 10.99.0.0/24")),
    // With the addresses that slirp4netns has; that one with the MTU that pasta has by default.
    ("pasta", Kind::Network, "pasta",
        "--foreground --quiet --runas 0 --ipv4-only --interface veth1 --config-net --ns-ifname tap0 \
         --address 10.0.2.100 --netmask 24 --gateway 10.0.2.2 --tcp-ports none --udp-ports none --tcp-ns none \
         --udp-ns none --netns-only --netns /var/run/inside"),
    ("slirp4netns", Kind::Network, "slirp4netns",
        "--configure --mtu 65520 --disable-dns --netns-type path /var/run/inside tap0"),
];

/// The peer of the tunnel, and the hub; of the TURN server, its peer at an address that only the server reaches.
macro_rules! to {
    (peer at $endpoint:literal) => {
        concat!(
            "[Peer]\nPublicKey = {other-key}\nAllowedIPs = {other}/32\nleft: Endpoint = ",
            $endpoint
        )
    };
    (hub) => {
        "[Peer]\nPublicKey = {hub-key}\nAllowedIPs = 10.8.0.0/24\nEndpoint = {hub}:51820\nPersistentKeepalive = 25\n"
    };
    (turn $uri:literal $rest:literal) => {
        concat!(
            "left: #convoy: Turn = ", $uri, " Username = {user}", $rest, " PasswordFile = {password}\n",
            to!(peer at "10.10.2.2:51820")
        )
    };
}

#[rustfmt::skip]
const PATHS: [Entry; 6] = [
    ("plain", Kind::Client, CONVOY, to!(peer at "10.9.0.2:51820")),
    ("hub", Kind::Client, CONVOY, to!(hub)),
    ("direct", Kind::Client, CONVOY, concat!(to!(hub), "#convoy: Direct = {other-key} {other}/32")),
    ("turn-udp", Kind::Client, CONVOY, to!(turn "turn:{hub}" "")),
    ("turn-tcp", Kind::Client, CONVOY, to!(turn "turn:{hub}?transport=tcp" "")),
    ("turn-tls", Kind::Client, CONVOY, to!(turn "turns:{hub}" " CaFile = {authority}")),
];

/// A program with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    pub(crate) arguments: String,
    /// Set on the interface after the start; `None` keeps the program's own.
    pub(crate) queue_length: Option<u32>,
}

impl Set {
    /// Lists the set's contenders; WireGuard programs besides Convoy also with Convoy's queue length.
    pub(crate) fn contenders(self, convoy: &Path, peers: &Path) -> Vec<Contender> {
        let entries = match self {
            Self::Programs => &PROGRAMS[..],
            Self::Rootless => &ROOTLESS,
            Self::Gateways => &GATEWAYS,
            Self::Paths => &PATHS,
        };
        let mut contenders = Vec::new();
        for (name, kind, program, arguments) in entries {
            let program = match *program {
                CONVOY => convoy.to_owned(),
                program => installed(peers, program, program),
            };
            let default = Contender {
                kind: *kind,
                arguments: (*arguments).to_owned(),
                ..Contender::wireguard(name, &program)
            };
            contenders.push(default.clone());
            if *kind == Kind::WireGuard && program != convoy {
                contenders.push(Contender {
                    name: format!("{name}{VARIANT}"),
                    queue_length: Some(TX_QUEUE_LEN),
                    ..default
                });
            }
        }
        contenders
    }
}

/// wireguard-go in the directory of `make peers`, or else in `PATH`.
pub(crate) fn wireguard_go(peers: &Path) -> Contender {
    let (name, _, program, _) = PROGRAMS[1];
    Contender::wireguard(name, &installed(peers, program, name))
}

/// A program in the directory of `make peers`, or else in `PATH`, where it may have another name.
fn installed(peers: &Path, program: &str, in_path: &str) -> PathBuf {
    let newest = peers.join(program);
    if newest.is_file() {
        newest
    } else {
        find(in_path)
    }
}

impl Contender {
    /// A program with the command line of `wireguard-go`.
    pub(crate) fn wireguard(name: &str, program: &Path) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::WireGuard,
            program: program.to_owned(),
            arguments: String::new(),
            queue_length: None,
        }
    }

    /// The veth without a tunnel.
    pub(crate) fn bare() -> Self {
        Self {
            kind: Kind::Bare,
            ..Self::wireguard(BARE, Path::new(""))
        }
    }

    pub(crate) fn is_variant(&self) -> bool {
        self.name.ends_with(VARIANT)
    }

    /// The daemon; the program itself if the contender is another one.
    pub(crate) fn implementation(&self) -> Implementation {
        let words = match self.kind {
            Kind::WireGuard => self.arguments.split_whitespace(),
            _ => "".split_whitespace(),
        };
        words.fold(Implementation::new(&self.program), Implementation::argument)
    }

    /// Version; of a Go program that of its module, since a fork prints the original's.
    pub(crate) fn version(&self) -> Option<String> {
        // OpenVPN prints its version but exits with an error.
        let printed = |command: &mut Command| {
            let output = command.output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let mut go = Command::new("go");
        let modules = printed(go.args(["version", "-m"]).arg(&self.program));
        let module = modules.and_then(|modules| {
            let line = modules
                .lines()
                .find_map(|line| line.trim().strip_prefix("mod\t"))?;
            Some(line.split('\t').take(2).join(" "))
        });
        let versions = || printed(Command::new(&self.program).arg("--version"));
        let first = || versions()?.lines().next().map(str::to_owned);
        module.or_else(first)
    }
}
