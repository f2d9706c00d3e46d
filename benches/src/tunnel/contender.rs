//! The programs to compare, and how each is started.

use std::path::{Path, PathBuf};
use std::process::Command;

use convoy_lab::wireguard::Implementation;
use convoy_tun::TX_QUEUE_LEN;
use serde::{Deserialize, Serialize};

use super::{gateway, rootless};
use crate::programs::find;

/// The contender that the others are compared with.
pub(crate) const CONVOY: &str = "convoy";
pub(crate) const EXEC: &str = "exec";
pub(crate) const PORTS: &str = "ports";
pub(crate) const PORTS_SMOLTCP: &str = "ports-smoltcp";
pub(crate) const WIREPROXY: &str = "wireproxy";
pub(crate) const ONETUN: &str = "onetun";
/// Gateways: the kernel's masquerading, and Convoy's own NAT.
pub(crate) const MASQUERADE: &str = "masquerade";
pub(crate) const NAT: &str = "nat";
/// The veth without a tunnel.
pub(crate) const BARE: &str = "bare veth";
/// Suffix of a variant: the same program with Convoy's queue length on its interface.
const VARIANT: &str = "+q";

/// The WireGuard programs besides Convoy: name, program installed by `make peers`, arguments.
const PEERS: [(&str, &str, &[&str]); 4] = [
    ("wireguard-go", "wireguard", &[]),
    ("tailscale", "wireguard-tailscale", &[]),
    // These two look up the logged-in user, and exit if there is none.
    ("gotatun", "gotatun", &["--disable-drop-privileges"]),
    ("boringtun", "boringtun-cli", &["--disable-drop-privileges"]),
];
/// VPNs with another protocol: name, program as distributions name it, arguments.
const OPENVPNS: [(&str, &str, &[&str]); 2] = [
    ("openvpn", "openvpn", &["--disable-dco"]),
    // Kernel data channel, if the kernel supports it.
    ("openvpn-dco", "openvpn", &[]),
];
/// How a contender carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
}

/// A program with its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Set on the interface after the start; `None` keeps the program's own.
    pub(crate) queue_length: Option<u32>,
    pub(crate) version: Option<String>,
}

/// Convoy; each peer with its defaults and again with Convoy's queue length; and OpenVPN.
pub(crate) fn all(convoy: &Path, peers: &Path) -> Vec<Contender> {
    let convoy = Contender::wireguard(CONVOY, convoy);
    let peers = PEERS.iter().flat_map(|&(name, program, arguments)| {
        let program = peers.join(program);
        let default = Contender::of(Kind::WireGuard, name, &program, owned(arguments));
        let variant = Contender {
            name: format!("{name}{VARIANT}"),
            queue_length: Some(TX_QUEUE_LEN),
            ..default.clone()
        };
        [default, variant]
    });
    let openvpns = OPENVPNS.map(|(name, program, arguments)| {
        Contender::of(Kind::OpenVpn, name, &find(program), owned(arguments))
    });
    std::iter::once(convoy)
        .chain(peers)
        .chain(openvpns)
        .collect()
}

/// Convoy in TUN mode, and programs that need no root: Convoy's own ways, and others.
pub(crate) fn rootless(convoy: &Path, peers: &Path) -> Vec<Contender> {
    let wireproxy = installed(peers, WIREPROXY, WIREPROXY);
    let onetun = installed(peers, ONETUN, ONETUN);
    let config = || owned(&["--config", rootless::FILE]);
    let exec = owned(&["exec", rootless::FILE, "--"]);
    vec![
        Contender::wireguard(CONVOY, convoy),
        Contender::of(Kind::Exec, EXEC, convoy, exec),
        Contender::of(Kind::Ports, PORTS, convoy, rootless::up("namespace")),
        Contender::of(Kind::Ports, PORTS_SMOLTCP, convoy, rootless::up("smoltcp")),
        Contender::of(Kind::Socks, "socks5", convoy, rootless::up("namespace")),
        Contender::of(Kind::Ports, WIREPROXY, &wireproxy, config()),
        Contender::of(Kind::Socks, "wireproxy-socks5", &wireproxy, config()),
        Contender::of(Kind::Ports, ONETUN, &onetun, rootless::onetun()),
    ]
}

/// Gateways: Convoy in TUN mode with the kernel's masquerading, Convoy's own NAT, and user-mode networks.
pub(crate) fn gateways(convoy: &Path) -> Vec<Contender> {
    let nat = |name, engine| Contender::of(Kind::Nat, name, convoy, gateway::nat(engine));
    let network = |name, arguments| Contender::of(Kind::Network, name, &find(name), arguments);
    vec![
        Contender::wireguard(MASQUERADE, convoy),
        nat(NAT, "namespace"),
        nat("nat-smoltcp", "smoltcp"),
        network("pasta", gateway::pasta()),
        network("slirp4netns", gateway::slirp4netns()),
    ]
}

/// wireguard-go in the directory of `make peers`, or else in `PATH`.
pub(crate) fn wireguard_go(peers: &Path) -> Contender {
    let (name, program, _) = PEERS[0];
    Contender::wireguard(name, &installed(peers, program, name))
}

/// A program in the directory of `make peers`, or else under its usual name in `PATH`.
fn installed(peers: &Path, program: &str, name: &str) -> PathBuf {
    let newest = peers.join(program);
    if newest.is_file() { newest } else { find(name) }
}

impl Kind {
    /// Whether it takes the place of a daemon at the near end.
    pub(crate) fn is_rootless(self) -> bool {
        matches!(self, Self::Exec | Self::Ports | Self::Socks | Self::Nat)
    }
}

impl Contender {
    /// A program with the command line of `wireguard-go`.
    pub(crate) fn wireguard(name: &str, program: &Path) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::WireGuard,
            program: program.to_owned(),
            arguments: Vec::new(),
            queue_length: None,
            version: None,
        }
    }

    fn of(kind: Kind, name: &str, program: &Path, arguments: Vec<String>) -> Self {
        Self {
            kind,
            arguments,
            ..Self::wireguard(name, program)
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

    pub(crate) fn implementation(&self) -> Implementation {
        let program = Implementation::new(&self.program);
        self.arguments
            .iter()
            .fold(program, Implementation::argument)
    }

    /// Adds the version; for a Go program that of its module, since a fork prints the original's.
    pub(crate) fn with_version(mut self) -> Self {
        // OpenVPN prints its version but exits with an error.
        let printed = |command: &mut Command| {
            let output = command.output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let mut go = Command::new("go");
        let modules = printed(go.args(["version", "-m"]).arg(&self.program));
        let module = modules.and_then(|modules| {
            let mut lines = modules.lines();
            let line = lines.find_map(|line| line.trim().strip_prefix("mod\t"));
            let words: Vec<_> = line?.split('\t').take(2).collect();
            Some(words.join(" "))
        });
        let versions = || printed(Command::new(&self.program).arg("--version"));
        let first = || versions()?.lines().next().map(str::to_owned);
        self.version = module.or_else(first);
        self
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&one| one.to_owned()).collect()
}
