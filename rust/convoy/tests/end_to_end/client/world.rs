//! The three machines and their files.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::PathBuf,
    sync::atomic::AtomicUsize,
    thread,
};

use convoy_lab::{Lab, Namespace, Turn, eventually, wireguard::Daemon};

use crate::{
    hub::forward,
    pairing::Program,
    scene::{DEADLINE, lab_with, output_of},
    twins::{private_key, public_key},
};

/// A peer for all addresses.
pub(super) const EVERYTHING: &str = "Endpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n";
/// A peer for the hosts behind the tunnel.
pub(super) const BEHIND_ONLY: &str = "Endpoint = 203.0.113.1:51820\n\
     AllowedIPs = 10.8.0.0/24, 198.51.100.0/24, fd08::/64, 2001:db8:ffff::/48\n";
/// Hosts behind the tunnel.
pub(super) const BEHIND: [&str; 2] = ["198.51.100.1", "2001:db8:ffff::1"];
/// The files of `/etc` that the client's programs need.
const ETC: &str = "alternatives group gai.conf host.conf hosts iproute2 ld.so.cache ld.so.conf \
     ld.so.conf.d nsswitch.conf passwd protocols services";

/// A client, the net, and a server with hosts behind it.
///
/// Prints what the client's commands said when the test fails.
pub(super) struct World {
    pub(super) client: Namespace,
    pub(super) net: Namespace,
    pub(super) server: Namespace,
    /// Counts the client's commands, whose output is in files.
    pub(super) commands: AtomicUsize,
    _daemon: Daemon,
    lab: Lab,
    _turn: Turn,
}

impl World {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    pub(super) fn new() -> Option<Self> {
        Self::with(&[])
    }

    /// For a test that also needs these programs.
    pub(super) fn with(programs: &[&str]) -> Option<Self> {
        Self::in_turn(Turn::together(), programs)
    }

    /// With this program at the server.
    pub(super) fn served_by(server: Program) -> Option<Self> {
        Self::build(Turn::together(), &[], server)
    }

    /// For a test that may not run beside every other.
    pub(super) fn in_turn(turn: Turn, programs: &[&str]) -> Option<Self> {
        Self::build(turn, programs, Program::WireguardGo)
    }

    fn build(turn: Turn, programs: &[&str], at_server: Program) -> Option<Self> {
        let needed = [&["ip", "nft", "ping", "wg"][..], programs].concat();
        let (_, lab) = lab_with(&[at_server], &needed)?;
        let [client, net, server] =
            ["client", "net", "server"].map(|label| lab.namespace(label).unwrap());
        // Link-local addresses are random and appear at random times.
        let without = || fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
        client.run(without).unwrap().unwrap();
        let (near, lan) = (
            ["192.168.1.2/24", "2001:db8:2::2/64"],
            ["192.168.1.1/24", "2001:db8:2::1/64"],
        );
        let far = [
            "203.0.113.1/24",
            "203.0.113.2/24",
            "2001:db8:1::1/64",
            "2001:db8:1::2/64",
        ];
        let wan = ["203.0.113.254/24", "2001:db8:1::fe/64"];
        lab.veth(&client, "eth0", &near, &net, "lan", &lan, 1_500)
            .unwrap();
        lab.veth(&server, "eth0", &far, &net, "wan", &wan, 1_500)
            .unwrap();
        forward(&net);
        let world = Self {
            _daemon: Daemon::start(&server, &at_server.implementation(), "wg0").unwrap(),
            client,
            net,
            server,
            commands: AtomicUsize::new(0),
            lab,
            _turn: turn,
        };
        world.set_up_server();
        world.set_up_client();
        Some(world)
    }

    fn set_up_server(&self) {
        let (own, client) = (private_key(2), public_key(1));
        let link = self.server.link();
        link.bring_up("lo", 65_536, &BEHIND).unwrap();
        link.bring_up("wg0", 1_420, &["10.8.0.1/24", "fd08::1/64"])
            .unwrap();
        self.shell_at(
            &self.server,
            &format!(
                "ip route add default via 203.0.113.254; ip route add default via 2001:db8:1::fe
                 echo {own} > /run/key
                 wg set wg0 listen-port 51820 private-key /run/key \
                     peer {client} allowed-ips 10.8.0.2/32,fd08::2/128"
            ),
        );
    }

    /// Gives it directories of its own.
    fn set_up_client(&self) {
        self.shell(&format!(
            "umask 022; mkdir -p /run/etc/wireguard /run/lib; chmod 700 /run/etc/wireguard
             (cd /etc; cp -a {ETC} /run/etc) 2>/dev/null || true
             echo nameserver 192.168.1.1 > /run/etc/resolv.conf
             mount --bind /run/etc /etc; mount --bind /run/lib /var/lib
             ip route add default via 192.168.1.1; ip route add default via 2001:db8:2::1"
        ));
        // The kernel notices the carrier late.
        let shown = || output_of(&self.client, "ip", &["-o", "link", "show", "eth0"]);
        let is_up = || shown().contains("state UP");
        assert!(eventually(DEADLINE, || is_up().then_some(())).is_some());
    }

    /// For machines besides these three.
    pub(super) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Writes `/etc/wireguard/wg0.conf`: `[Interface]` with the client's key and addresses and these lines,
    /// and the server as its `[Peer]`.
    pub(super) fn configure(&self, interface: &str, peer: &str) {
        let (own, server) = (private_key(1), public_key(2));
        self.write(
            "wireguard/wg0.conf",
            &format!(
                "[Interface]\nPrivateKey = {own}\nAddress = 10.8.0.2/24, fd08::2/64\n{interface}\n\
                 [Peer]\nPublicKey = {server}\n{peer}"
            ),
        );
    }

    /// Writes a file below the client's `/etc` that only root can read.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.etc().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    }

    /// Reads a file below the client's `/etc`.
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.etc().join(name)).unwrap()
    }

    fn etc(&self) -> PathBuf {
        self.client.run_directory().join("etc")
    }

    /// Runs a shell command at the client; returns its output.
    pub(super) fn shell(&self, line: &str) -> String {
        self.shell_at(&self.client, line)
    }

    pub(super) fn shell_at(&self, place: &Namespace, line: &str) -> String {
        output_of(place, "sh", &["-ec", line])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the client's commands wrote:\n{}", self.log());
        }
    }
}
