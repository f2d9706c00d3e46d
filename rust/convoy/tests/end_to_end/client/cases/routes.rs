//! Routes and rules of a LAN, of other programs and of files that cover too much.

mod closed;
mod dhcp;
mod held;
mod local;
mod marks;
mod others;
mod rules;

use convoy_lab::eventually;

use crate::{client::world::World, scene::DEADLINE};

impl World {
    /// Makes one of the files of `inputs` the client's configuration.
    fn install(&self, text: &str) {
        self.write("wireguard/wg0.conf", text);
    }

    /// Returns how an unmarked packet to the address leaves; what ip(8) says if it does not.
    fn way(&self, to: &str) -> String {
        self.shell(&format!("ip route get {to} 2>&1 || true"))
    }

    /// Returns how a datagram of the tunnel's to the address leaves.
    fn marked_way(&self, to: &str) -> String {
        let mark = self.shell("wg show wg0 fwmark");
        self.shell(&format!(
            "ip route get {to} mark {} 2>&1 || true",
            mark.trim()
        ))
    }

    /// Waits until `convoy status` warns of this.
    fn warns(&self, words: &str) {
        let mut said = String::new();
        let is_said = || {
            said = self.status()["warnings"].to_string();
            said.contains(words).then_some(())
        };
        assert!(
            eventually(DEADLINE, is_said).is_some(),
            "no {words:?} in {said}"
        );
    }

    /// Gives the LAN a metric, as NetworkManager does.
    fn gives_lan_a_metric(&self) {
        self.shell(
            "ip route del 192.168.1.0/24 dev eth0
             ip route add 192.168.1.0/24 dev eth0 proto kernel src 192.168.1.2 metric 100
             ip route replace default via 192.168.1.1",
        );
    }
}
