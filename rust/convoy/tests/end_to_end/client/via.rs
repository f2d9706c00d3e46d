//! A tunnel inside another: `Via`.
//!
//! ```text
//!  client                     net                            server (first hop)
//!   eth0 192.168.1.2 ─────── 192.168.1.1                      wg0 10.8.0.1, forwards
//!                            203.0.113.254 ────────────────── eth0 203.0.113.1
//!                            192.0.2.254 ──────────────────── eth0 192.0.2.2   second hop
//!   wg0 10.7.0.2 ════════════════════════════════════════════ wg1 10.7.0.1, hosts behind it on lo
//! ```

mod changed;
mod hops;
mod life;
mod refusals;
mod shown;

use std::fs;

use convoy_lab::{Namespace, wireguard::Daemon};

use super::world::{EVERYTHING, World};
use crate::{
    hub::forward,
    pairing::Program,
    twins::{private_key, public_key},
};

/// Behind the second hop.
const BEHIND_SECOND: &str = "198.18.0.1";
/// The second hop's endpoint.
const SECOND: &str = "192.0.2.2";
/// Counts what leaves the client for the second hop, or from it, without the first one.
const COUNTERS: &str = "
    table inet watch {
        chain out {
            type filter hook postrouting priority 300;
            oifname eth0 ip daddr 192.0.2.2 counter comment \"clear\"
            oifname eth0 ip daddr 203.0.113.1 udp dport 51820 counter comment \"first\"
            oifname eth0 meta l4proto udp counter comment \"any\"
        }
    }";

/// The world with a second hop.
struct Hops {
    world: World,
    second: Namespace,
    _daemon: Daemon,
}

impl Hops {
    /// With both files and the tunnel not up. `interface` are lines of the inner file.
    fn new(interface: &str) -> Option<Self> {
        Self::of(Program::WireguardGo, interface)
    }

    /// With this program at both hops.
    fn of(program: Program, interface: &str) -> Option<Self> {
        let world = World::served_by(program)?;
        let lab = world.lab();
        let second = lab.namespace("second").unwrap();
        let (far, near) = (["192.0.2.2/24"], ["192.0.2.254/24"]);
        lab.veth(&second, "eth0", &far, &world.net, "far", &near, 1_500)
            .unwrap();
        forward(&world.server);
        world.shell_at(&world.net, "ip route add 10.8.0.0/24 via 203.0.113.1");
        let daemon = Daemon::start(&second, &program.implementation(), "wg1").unwrap();
        let link = second.link();
        link.bring_up("lo", 65_536, &[BEHIND_SECOND]).unwrap();
        link.bring_up("wg1", 1_420, &["10.7.0.1/24"]).unwrap();
        let (own, client) = (private_key(3), public_key(4));
        world.shell_at(
            &second,
            &format!(
                "ip route add default via 192.0.2.254
                 echo {own} > /run/key
                 wg set wg1 listen-port 51820 private-key /run/key peer {client} allowed-ips 10.7.0.2/32"
            ),
        );
        let hops = Self {
            world,
            second,
            _daemon: daemon,
        };
        hops.configure_first(EVERYTHING);
        hops.configure(interface, "0.0.0.0/0");
        Some(hops)
    }

    /// Writes the outer file, `hop.conf`.
    fn configure_first(&self, peer: &str) {
        let (own, server) = (private_key(1), public_key(2));
        self.world.write(
            "wireguard/hop.conf",
            &format!(
                "[Interface]\nPrivateKey = {own}\nAddress = 10.8.0.2/24, fd08::2/64\n\n[Peer]\nPublicKey = {server}\n{peer}"
            ),
        );
    }

    /// Writes the inner file, `wg0.conf`.
    fn configure(&self, interface: &str, allowed: &str) {
        let (own, second) = (private_key(4), public_key(3));
        self.world.write(
            "wireguard/wg0.conf",
            &format!(
                "[Interface]\nPrivateKey = {own}\nAddress = 10.7.0.2/32\n#convoy: Via = hop\n{interface}\n\
                 [Peer]\nPublicKey = {second}\nEndpoint = {SECOND}:51820\nAllowedIPs = {allowed}\n"
            ),
        );
    }

    /// Waits until a host behind the second hop answers.
    fn reaches_behind(&self) {
        self.world.reaches(BEHIND_SECOND);
    }

    /// Counts packets from now on.
    fn watch(&self) {
        self.world.shell(&format!(
            "nft delete table inet watch 2>/dev/null || true; nft -f - <<'END'\n{COUNTERS}\nEND"
        ));
    }

    /// The packets that a counter has counted.
    fn counted(&self, name: &str) -> u64 {
        let listed = self.world.shell("nft list table inet watch");
        let line = listed
            .lines()
            .find(|line| line.contains(&format!("comment \"{name}\"")));
        let words: Vec<_> = line.expect("a counter").split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").unwrap();
        words[at + 1].parse().unwrap()
    }

    /// All UDP that has left was for the first hop, and some has.
    fn nothing_was_clear(&self, when: &str) {
        assert_eq!(self.counted("clear"), 0, "{when}");
        let (any, first) = (self.counted("any"), self.counted("first"));
        assert!(first > 0, "{when}");
        assert_eq!(any, first, "{when}");
    }

    /// Source addresses from which the second hop has heard the client.
    fn endpoint_at_second(&self) -> String {
        self.world
            .shell_at(&self.second, "wg show wg1 endpoints | cut -f2")
    }

    fn etc(&self, name: &str) -> String {
        let path = self.world.client.run_directory().join("etc/wireguard");
        fs::read_to_string(path.join(name)).unwrap()
    }
}
