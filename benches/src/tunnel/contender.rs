//! The programs to compare: tables of their arguments and files.

use std::path::{Path, PathBuf};
use std::process::Command;

use convoy_lab::wireguard::Implementation;
use itertools::Itertools as _;

use crate::programs::{self, find};

/// The contender that the others are compared with.
pub(crate) const CONVOY: &str = "convoy";
/// Suffix of a variant: the same program with Convoy's queue length on its interface.
const VARIANT: &str = "+q";
/// The far end's ports, which are the same on the near end's loopback: for a load, probes and requests.
pub(super) const PORTS: [u16; 3] = [5301, 5302, 5303];

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
    /// Clients at both ends that `convoy up` starts.
    Client,
    /// A TCP forwarder at the far end, without a tunnel: what it relays goes back to the near end.
    Forward,
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
    /// TCP forwarders.
    Forwarders = b'f',
    /// Two builds of Convoy.
    Commits = b'c',
}

/// Name, kind, program, arguments and file. `convoy` is the program that `--convoy` names; others are in the directory of
/// `make peers` or in `PATH`. [`fill`] fills the places in braces once the namespaces stand.
type Entry = (&'static str, Kind, &'static str, &'static str, &'static str);

// gotatun and boringtun look up the logged-in user, and exit if there is none. `openvpn-dco` uses the kernel's data
// channel, if the kernel has one.
#[rustfmt::skip]
const PROGRAMS: [Entry; 7] = [
    (CONVOY, Kind::WireGuard, CONVOY, "", ""),
    ("wireguard-go", Kind::WireGuard, "wireguard", "", ""),
    ("tailscale", Kind::WireGuard, "wireguard-tailscale", "", ""),
    ("gotatun", Kind::WireGuard, "gotatun", "--disable-drop-privileges", ""),
    ("boringtun", Kind::WireGuard, "boringtun-cli", "--disable-drop-privileges", ""),
    ("openvpn", Kind::OpenVpn, "openvpn", "--config {file} --disable-dco", OPENVPN),
    ("openvpn-dco", Kind::OpenVpn, "openvpn", "--config {file}", OPENVPN),
];

#[rustfmt::skip]
const ROOTLESS: [Entry; 8] = [
    (CONVOY, Kind::WireGuard, CONVOY, "", ""),
    ("exec", Kind::Exec, CONVOY, "exec {file} -- sleep infinity", NEAR),
    ("ports", Kind::Ports, CONVOY, "{up} namespace --socks5 127.0.0.1:1080{forwards}", NEAR),
    ("ports-smoltcp", Kind::Ports, CONVOY, "{up} smoltcp --socks5 127.0.0.1:1080{forwards}", NEAR),
    ("socks5", Kind::Socks, CONVOY, "{up} namespace --socks5 127.0.0.1:1080{forwards}", NEAR),
    ("wireproxy", Kind::Ports, "wireproxy", "--config {file}", WIREPROXY),
    ("wireproxy-socks5", Kind::Socks, "wireproxy", "--config {file}", WIREPROXY),
    ("onetun", Kind::Ports, "onetun",
        "--private-key {own-key} --endpoint-public-key {other-key} --endpoint-addr 10.9.0.2:51820 \
         --source-peer-ip {own} --max-transmission-unit 1420 --log warn{onetun-forwards}", ""),
];

// Targets on the gateway's own links are forbidden by default.
#[rustfmt::skip]
const GATEWAYS: [Entry; 5] = [
    ("masquerade", Kind::WireGuard, CONVOY, "", ""),
    ("nat", Kind::Nat, CONVOY, "{up} namespace --nat user --nat-allow 10.99.0.0/24", NEAR),
    ("nat-smoltcp", Kind::Nat, CONVOY, "{up} smoltcp --nat user --nat-allow 10.99.0.0/24", NEAR),
    // With the addresses that slirp4netns has; that one with the MTU that pasta has by default.
    ("pasta", Kind::Network, "pasta",
        "--foreground --quiet --runas 0 --ipv4-only --interface veth1 --config-net --ns-ifname tap0 \
         --address 10.0.2.100 --netmask 24 --gateway 10.0.2.2 --tcp-ports none --udp-ports none --tcp-ns none \
         --udp-ns none --netns-only --netns /var/run/inside", ""),
    ("slirp4netns", Kind::Network, "slirp4netns",
        "--configure --mtu 65520 --disable-dns --netns-type path /var/run/inside tap0", ""),
];

const CLIENT: &str = "up {file} --foreground";
#[rustfmt::skip]
const PATHS: [Entry; 6] = [
    ("plain", Kind::Client, CONVOY, CLIENT, NEAR),
    ("hub", Kind::Client, CONVOY, CLIENT, "{interface}{hub-peer}"),
    ("direct", Kind::Client, CONVOY, CLIENT, "{interface}{hub-peer}#convoy: Direct = {other-key} {other}/32\n"),
    ("turn-udp", Kind::Client, CONVOY, CLIENT, "{turn} turn:{hub} Username = bench {password}\n{beyond}"),
    ("turn-tcp", Kind::Client, CONVOY, CLIENT, "{turn} turn:{hub}?transport=tcp Username = bench {password}\n{beyond}"),
    ("turn-tls", Kind::Client, CONVOY, CLIENT,
        "{turn} turns:{hub} Username = bench CaFile = {directory}/authority {password}\n{beyond}"),
];

#[rustfmt::skip]
const FORWARDERS: [Entry; 7] = [
    ("tokio's copy, 8 KiB", Kind::Forward, CONVOY, "forward --relay=tokio --buffer=8K {file}", FORWARD),
    ("copy, 16 KiB", Kind::Forward, CONVOY, "forward --relay=copy --buffer=16K {file}", FORWARD),
    ("copy, 64 KiB", Kind::Forward, CONVOY, "forward --relay=copy --buffer=64K {file}", FORWARD),
    ("splice, 64 KiB", Kind::Forward, CONVOY, "forward --relay=splice --buffer=64K {file}", FORWARD),
    ("rinetd", Kind::Forward, "rinetd", "-f -c {file}", "10.9.0.2 5301 10.9.0.1 5301\n"),
    ("socat", Kind::Forward, "socat", "TCP-LISTEN:5301,bind=10.9.0.2,fork,reuseaddr TCP:10.9.0.1:5301", ""),
    ("haproxy", Kind::Forward, "haproxy", "-db -f {file}", HAPROXY),
];

/// The peer at the other end, where the near one calls it.
const NEAR: &str = "{interface}{peer}left: Endpoint = 10.9.0.2:51820\n";
/// Both ends have the same certificate, of the lab's authority.
const OPENVPN: &str = "\
dev vpn0
dev-type tun
proto udp4
ca {directory}/authority
cert {directory}/certificate
key {directory}/key
left: tls-client
left: nobind
left: remote 10.9.0.2 1194
left: ifconfig 10.7.0.1 10.7.0.2
right: tls-server
right: dh none
right: port 1194
right: ifconfig 10.7.0.2 10.7.0.1
";
const WIREPROXY: &str = "\
{interface}{peer}Endpoint = 10.9.0.2:51820
{wireproxy-forwards}
[Socks5]
BindAddress = 127.0.0.1:1080
";

const FORWARD: &str = "Forward = 10.9.0.2:5301:10.9.0.1:5301\nAllow = 10.9.0.1\n";
const HAPROXY: &str = "\
defaults
    mode tcp
    option splice-request
    option splice-response
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen relay
    bind 10.9.0.2:5301
    server target 10.9.0.1:5301
";

/// Texts of several contenders; one with a `{port}` is repeated for each of [`PORTS`].
#[rustfmt::skip]
const FRAGMENTS: [(&str, &str); 10] = [
    ("{up}", "up {file} --userspace --foreground --engine"),
    ("{forwards}", " -L 127.0.0.1:{port}:{other}:{port} -L 127.0.0.1:{port}:{other}:{port}/udp"),
    ("{onetun-forwards}", " 127.0.0.1:{port}:{other}:{port}:TCP,UDP"),
    ("{wireproxy-forwards}", "
[TCPClientTunnel]
BindAddress = 127.0.0.1:{port}
Target = {other}:{port}

[UDPProxyTunnel]
BindAddress = 127.0.0.1:{port}
Target = {other}:{port}
"),
    // The peer of a TURN server's client has an address that only the server reaches.
    ("{turn}", "{interface}left: #convoy: Turn ="),
    ("{password}", "PasswordFile = {directory}/password"),
    ("{beyond}", "{peer}left: Endpoint = 10.10.2.2:51820\n"),
    ("{interface}", "\
[Interface]
PrivateKey = {own-key}
Address = {own}/24
MTU = 1420
ListenPort = 51820
"),
    ("{peer}", "\
[Peer]
PublicKey = {other-key}
AllowedIPs = {other}/32
"),
    ("{hub-peer}", "\
[Peer]
PublicKey = {hub-key}
AllowedIPs = 10.8.0.0/24
Endpoint = {hub}:51820
PersistentKeepalive = 25
"),
];

/// Fills the places of a text with [`FRAGMENTS`] and with `places`, and leaves out lines that are marked for the other
/// end: that a client at the right learns where the left one is, for example.
pub(super) fn fill(text: &str, is_left: bool, places: &[(&str, String)]) -> String {
    let of_port = |text: &str, port: u16| text.replace("{port}", &port.to_string());
    let fragment = |&(place, text): &(&'static str, &str)| match text.contains("{port}") {
        true => (place, PORTS.map(|port| of_port(text, port)).concat()),
        false => (place, text.to_owned()),
    };
    let places = FRAGMENTS.iter().map(fragment).chain(places.iter().cloned());
    let filled = places.fold(text.to_owned(), |text, (place, value)| {
        text.replace(place, &value)
    });
    let (own, other) = match is_left {
        true => ("left: ", "right: "),
        false => ("right: ", "left: "),
    };
    let lines = filled.lines().filter(|line| !line.starts_with(other));
    let own_lines = lines.map(|line| line.strip_prefix(own).unwrap_or(line).to_owned() + "\n");
    own_lines.collect()
}

/// A program with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    pub(super) arguments: &'static str,
    pub(super) file: &'static str,
}

impl Set {
    /// Lists the set's contenders; WireGuard programs besides Convoy also with Convoy's queue length.
    pub(crate) fn contenders(self, convoy: &Path, peers: &Path) -> Vec<Contender> {
        let entries = match self {
            Self::Programs => &PROGRAMS[..],
            Self::Rootless => &ROOTLESS,
            Self::Gateways => &GATEWAYS,
            Self::Paths => &PATHS,
            Self::Forwarders => &FORWARDERS,
            Self::Commits => &[],
        };
        let mut contenders = Vec::new();
        for &(name, kind, program, arguments, file) in entries {
            let default = Contender {
                name: name.to_owned(),
                kind,
                program: match program {
                    CONVOY => convoy.to_owned(),
                    program => installed(peers, program, program),
                },
                arguments,
                file,
            };
            contenders.push(default.clone());
            if kind == Kind::WireGuard && program != CONVOY {
                let name = format!("{name}{VARIANT}");
                contenders.push(Contender { name, ..default });
            }
        }
        contenders
    }
}

/// wireguard-go in the directory of `make peers`, or else in `PATH`.
pub(crate) fn wireguard_go(peers: &Path) -> Contender {
    let (name, _, program, ..) = PROGRAMS[1];
    Contender::wireguard(name, &installed(peers, program, name))
}

/// A program in the directory of `make peers`, or else in `PATH`, where it may have another name.
fn installed(peers: &Path, program: &str, in_path: &str) -> PathBuf {
    let newest = peers.join(program);
    match newest.is_file() {
        true => newest,
        false => find(in_path),
    }
}

impl Contender {
    /// A program with the command line of `wireguard-go`.
    pub(crate) fn wireguard(name: &str, program: &Path) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::WireGuard,
            program: program.to_owned(),
            arguments: "",
            file: "",
        }
    }

    /// The veth without a tunnel.
    pub(crate) fn bare() -> Self {
        Self {
            kind: Kind::Bare,
            ..Self::wireguard("bare veth", Path::new(""))
        }
    }

    pub(crate) fn is_variant(&self) -> bool {
        self.name.ends_with(VARIANT)
    }

    /// The daemon, if it is a WireGuard program.
    pub(crate) fn implementation(&self) -> Implementation {
        let words = self.arguments.split_whitespace();
        words.fold(Implementation::new(&self.program), Implementation::argument)
    }

    /// Returns why it cannot take part; `None` if it can.
    pub(super) fn absence(&self) -> Option<String> {
        if !self.program.is_file() {
            let name = self.program.file_name().unwrap_or_default();
            let name = name.to_string_lossy();
            return Some(format!("{name} is not in target/peers/bin or PATH"));
        }
        let engine = self.arguments.strip_prefix("{up} ")?.split(' ').next()?;
        let help = programs::output(Command::new(&self.program).args(["up", "--help"]));
        let has_it = help.is_ok_and(|help| help.contains("--engine") && help.contains(engine));
        (!has_it).then(|| format!("this convoy has no `up --userspace --engine {engine}`"))
    }

    /// The version: of a Go program that of its module, since a fork prints the original's; otherwise the first
    /// printed line that names one. OpenVPN prints its version but exits with an error.
    pub(crate) fn version(&self) -> Option<String> {
        let printed = |command: &mut Command| {
            let output = command.output().map(|output| output.stdout);
            String::from_utf8_lossy(&output.unwrap_or_default()).into_owned()
        };
        let mut go = Command::new("go");
        let module = printed(go.args(["version", "-m"]).arg(&self.program));
        let mut modules = module.lines();
        if let Some(module) = modules.find_map(|line| line.trim().strip_prefix("mod\t")) {
            return Some(module.split('\t').take(2).join(" "));
        }
        let option = match &self.name[..] {
            "socat" => "-V",
            "haproxy" => "-v",
            _ => "--version",
        };
        let printed = printed(Command::new(&self.program).arg(option));
        let names_one = |line: &&str| line.contains("version") || line.contains(char::is_numeric);
        printed.lines().find(names_one).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_and_an_engine_that_convoy_lacks_are_absent() {
        let missing = Contender::wireguard("wireproxy", Path::new("nowhere/wireproxy"));
        let why = missing.absence().unwrap();
        assert!(why.contains("target/peers/bin or PATH"), "{why}");
        // It prints its arguments: no engine among them.
        let all = Set::Rootless.contenders(Path::new("/bin/echo"), Path::new(""));
        let one = all.iter().find(|one| one.name == "ports-smoltcp").unwrap();
        let why = one.absence().unwrap();
        assert!(why.contains("--engine smoltcp"), "{why}");
    }

    #[test]
    fn no_argument_or_file_has_an_unfilled_place() {
        let known =
            "{own-key} {own} {other-key} {other} {directory} {hub-key} {hub} {file}".split(' ');
        let places: Vec<_> = known.map(|place| (place, "there".to_owned())).collect();
        let sets = [&PROGRAMS[..], &ROOTLESS, &GATEWAYS, &PATHS, &FORWARDERS];
        for (_, _, _, arguments, file) in sets.concat() {
            let text = fill(&(arguments.to_owned() + file), true, &places);
            assert!(!text.contains('{'), "{text}");
        }
    }

    #[test]
    fn places_are_filled_and_only_the_left_client_knows_its_peer_and_the_turn_server() {
        for contender in Set::Paths.contenders(Path::new("convoy"), Path::new("")) {
            let [left, right] = [true, false].map(|is_left| fill(contender.file, is_left, &[]));
            assert!(left.contains("Endpoint = "), "{left}");
            let knows_hub = right.contains("{hub-key}");
            assert_eq!(right.contains("Endpoint = "), knows_hub, "{right}");
            let is_private = !right.contains("Turn = ") && !right.contains("left: ");
            assert!(is_private, "{right}");
            assert_eq!(left.matches("[Peer]").count(), 1, "{left}");
        }
        let places = [("{own-key}", "key".to_owned()), ("{hub}", "hub".to_owned())];
        let text = fill("{interface}[Peer]\nleft: Endpoint = {hub}:1", true, &places);
        assert!(text.contains("PrivateKey = key\n"), "{text}");
        assert!(text.ends_with("[Peer]\nEndpoint = hub:1\n"), "{text}");
    }
}
