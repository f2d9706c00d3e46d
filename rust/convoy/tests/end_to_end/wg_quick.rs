//! `wg-quick` with Convoy instead of `wireguard-go` leaves the host in the same state, before, during
//! and after.
//!
//! ```text
//!  client                                server
//!   veth0 10.9.0.1  ──────────────────  10.9.0.2 veth0
//!   default via 10.9.0.2                203.0.113.1 lo      the peer's endpoint
//!   wg0   10.8.0.1  ══════════════════  10.8.0.2 wg0
//!                                       198.51.100.1 lo     a host behind the tunnel
//! ```

use std::{env, fs, path::Path};

use convoy_lab::{Lab, Namespace, eventually, wireguard::Daemon};
use nix::sys::signal::{Signal, kill};

use crate::{
    scene::{DEADLINE, convoy_program, lab, output_of, processes, wireguard_go},
    twins::{private_key, public_key, reference},
};

const FILE: &str = "/run/wg0.conf";

#[test]
fn everything_goes_through_the_tunnel_as_with_the_reference() {
    let interface = "Address = 10.8.0.1/24, fd08::1/64\nMTU = 1380\nListenPort = 51999\n\
                     PreUp = echo PreUp %i >> /run/hooks\nPostUp = echo PostUp %i >> /run/hooks\n\
                     PreDown = echo PreDown %i >> /run/hooks\nPostDown = echo PostDown %i >> /run/hooks\n";
    let peer = "AllowedIPs = 0.0.0.0/0, ::/0\nPersistentKeepalive = 25\n";
    as_with_the_reference(interface, peer, |client| {
        client.reaches("198.51.100.1");
        client.reaches("2001:db8:ffff::1");
        // Marked packets reach the endpoint outside the tunnel: the rule lets the mark pass.
        let marked = client.shell("ip -4 route get 203.0.113.1 mark 51820");
        assert!(marked.contains("dev veth0"), "{marked}");
        let unmarked = client.shell("ip -4 route get 203.0.113.1");
        assert!(unmarked.contains("dev wg0"), "{unmarked}");
        client.shell("wg show wg0 fwmark; cat /run/hooks")
    });
}

#[test]
fn a_custom_routing_table_works_as_with_the_reference() {
    let interface = "Address = 10.8.0.1/24\nAddress = fd08::1/64\nTable = 1234\nFwMark = 0x55\n\
                     PostUp = ip -4 rule add to 198.51.100.0/24 table 1234\n\
                     PostDown = ip -4 rule delete to 198.51.100.0/24 table 1234\n";
    let peer = "AllowedIPs = 198.51.100.0/24, 10.8.0.2/32, fd08::2/128\n";
    as_with_the_reference(interface, peer, |client| {
        client.reaches("198.51.100.1");
        client.shell("wg show wg0 fwmark")
    });
}

#[test]
fn a_configuration_is_saved_stripped_and_synchronised_as_with_the_reference() {
    let interface = "Address = 10.8.0.1/24\nListenPort = 51999\nSaveConfig = true\nMTU = 1400\n";
    let peer = "AllowedIPs = 10.8.0.2/32, 198.51.100.0/24\n";
    as_with_the_reference(interface, peer, |client| {
        let another = public_key(9);
        let stripped = client.shell(&format!("wg-quick strip {FILE}"));
        client.shell(&format!(
            "wg set wg0 fwmark 7 peer {another} allowed-ips 10.7.0.0/16,10.6.0.0/16 \
             persistent-keepalive 5; wg-quick save {FILE}"
        ));
        let saved = client.shell(&format!("cat {FILE}"));
        client.shell(&format!(
            "sed -i /^FwMark/d {FILE}; wg set wg0 peer {another} remove"
        ));
        client.shell(&format!(
            "bash -c 'wg syncconf wg0 <(wg-quick strip {FILE})'"
        ));
        client.reaches("10.8.0.2");
        let shown = client.shell("wg show wg0 allowed-ips | sort; wg show wg0 fwmark");
        // The reference lists peers in the random order of a Go map.
        let mut saved: Vec<_> = saved.split("\n\n").map(str::trim).collect();
        saved.sort_unstable();
        format!("{stripped}\n{}\n{shown}", saved.join("\n\n"))
    });
}

#[test]
fn after_kill_9_the_interface_comes_up_again_as_with_the_reference() {
    let peer = "AllowedIPs = 198.51.100.0/24, 10.8.0.2/32\n";
    as_with_the_reference("Address = 10.8.0.1/24\n", peer, |client| {
        client.reaches("198.51.100.1");
        client.kill_daemon();
        let left = client.host();
        let down = client.shell(&format!("wg-quick down {FILE} 2>&1 || echo failed: $?"));
        client.shell(&format!("wg-quick up {FILE}"));
        client.reaches("198.51.100.1");
        client.kill_daemon();
        client.shell(&format!("wg-quick up {FILE}"));
        client.reaches("198.51.100.1");
        format!("{left}\n{down}")
    });
}

/// Brings the interface up and down with Convoy and with the reference. The state of the host before,
/// meanwhile and after must be the same, and so must the result of `meanwhile`.
fn as_with_the_reference(interface: &str, peer: &str, meanwhile: impl Fn(&Client) -> String) {
    let programs = [convoy_program(), reference().program.clone()];
    let needed = [
        "wg-quick",
        "wg",
        "ip",
        "nft",
        "ping",
        "sysctl",
        "wireguard-go",
    ];
    let Some((_turn, lab)) = lab(&needed) else {
        return;
    };
    let [ours, theirs] = programs.map(|program| {
        let client = Client::new(&lab, &program, interface, peer);
        if client.has_kernel_wireguard() {
            eprintln!("skipped: wg-quick prefers the WireGuard of this kernel");
            return Vec::new();
        }
        let before = client.host();
        client.shell(&format!("wg-quick up {FILE}"));
        let up = client.host();
        assert_ne!(up, before);
        let meanwhile = meanwhile(&client);
        let shown = client.shell("wg show wg0 | grep -v -e handshake: -e transfer: -e port:");
        client.shell(&format!("wg-quick down {FILE}"));
        client.is_left_as(&before);
        let hooks = client.shell("cat /run/hooks 2>/dev/null || true");
        vec![before, up, meanwhile, shown, hooks]
    });
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

/// A host whose tunnel `wg-quick` sets up, and the server at the other end.
struct Client<'a> {
    namespace: Namespace,
    server: Namespace,
    program: &'a Path,
    _daemon: Daemon,
}

impl<'a> Client<'a> {
    fn new(lab: &Lab, program: &'a Path, interface: &str, peer: &str) -> Self {
        let (namespace, server) = (
            lab.namespace("client").unwrap(),
            lab.namespace("server").unwrap(),
        );
        let (left, right) = (["10.9.0.1/24", "fd09::1/64"], ["10.9.0.2/24", "fd09::2/64"]);
        lab.veth(&namespace, "veth0", &left, &server, "veth0", &right, 1_500)
            .unwrap();
        let daemon = Daemon::start(&server, &wireguard_go(), "wg0").unwrap();
        let client = Self {
            namespace,
            server,
            program,
            _daemon: daemon,
        };
        // Link-local addresses are random and appear at random times.
        client.shell(
            "sysctl -q net.ipv6.conf.default.addr_gen_mode=1; ip link set veth0 addrgenmode none; \
             ip address flush dev veth0 scope link",
        );
        let (server_key, client_key) = (public_key(2), public_key(1));
        let server = format!(
            "ip address add 203.0.113.1/32 dev lo; ip address add 198.51.100.1/32 dev lo; \
             ip address add 2001:db8:ffff::1/128 dev lo; ip link set up dev wg0; \
             ip address add 10.8.0.2/24 dev wg0; ip address add fd08::2/64 dev wg0; \
             echo {} > /run/key; wg set wg0 listen-port 51820 private-key /run/key \
             peer {client_key} allowed-ips 10.8.0.1/32,fd08::1/128",
            private_key(2)
        );
        output_of(&client.server, "sh", &["-c", &server]);
        client.shell("ip route add default via 10.9.0.2; ip route add default via fd09::2");
        let file = format!(
            "[Interface]\nPrivateKey = {}\n{interface}\n[Peer]\nPublicKey = {server_key}\n\
             Endpoint = 203.0.113.1:51820\n{peer}",
            private_key(1)
        );
        fs::write(client.namespace.run_directory().join("wg0.conf"), file).unwrap();
        client
    }

    /// Runs a shell command in which `wg-quick` finds the daemon by its name; returns its output.
    fn shell(&self, line: &str) -> String {
        let name = self.program.file_name().unwrap().to_str().unwrap();
        let mut path = self.program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        path.push(":/usr/sbin:/sbin");
        let mut command = self.namespace.command("sh");
        command.args(["-ec", line]).env("PATH", path);
        command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", name);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}:\n{said}{complaint}");
        said
    }

    fn reaches(&self, address: &str) {
        self.shell(&format!("ping -c 3 -i 0.2 -W 5 {address}"));
    }

    fn kill_daemon(&self) {
        for pid in processes(&self.namespace) {
            kill(pid, Signal::SIGKILL).unwrap();
        }
        // A dying process leaves the namespace before its interface is gone.
        let is_gone = || (!self.namespace.link().exists("wg0")).then_some(());
        assert!(eventually(DEADLINE, is_gone).is_some());
    }

    fn has_kernel_wireguard(&self) -> bool {
        let probe = "test -e /sys/module/wireguard || ip link add probe type wireguard 2>/dev/null";
        self.shell(&format!("if {probe}; then echo yes; fi")) == "yes\n"
    }

    /// Everything that `wg-quick` changes.
    fn host(&self) -> String {
        let all = self.shell(
            "ip -4 rule; ip -6 rule; ip -4 route show table all; ip -6 route show table all; \
             ip -brief address; ip -oneline link | sed 's/qdisc.*//'; \
             ls /run/wireguard 2>/dev/null || true; nft list ruleset; wg show interfaces",
        );
        // The kernel adds the local route of an IPv6 address asynchronously.
        let is_settled = |line: &&str| !line.starts_with("local fd08::");
        let mut lines: Vec<_> = all.lines().filter(is_settled).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// Requires that nothing is left of the tunnel, not even the daemon's process.
    fn is_left_as(&self, before: &str) {
        let is_as_before = || (self.host() == before).then_some(());
        assert!(
            eventually(DEADLINE, is_as_before).is_some(),
            "{}",
            self.host()
        );
        let is_alone = || processes(&self.namespace).is_empty().then_some(());
        assert!(
            eventually(DEADLINE, is_alone).is_some(),
            "{:?}",
            processes(&self.namespace)
        );
    }
}
