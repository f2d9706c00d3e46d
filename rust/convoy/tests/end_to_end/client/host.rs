//! The client's network: whether it works, and whether it is as it was.

use convoy_lab::eventually;

use super::world::{BEHIND, World};
use crate::scene::{DEADLINE, processes};

/// How long a ping is waited for, in seconds: a thousand times as long as its answer takes.
const PATIENCE: &str = "0.3";

impl World {
    /// Gives the client another address on its cable, as another network would.
    pub(super) fn changes_network(&self) {
        self.shell(
            "ip address add 192.168.1.3/24 dev eth0
             ip route replace default via 192.168.1.1 src 192.168.1.3",
        );
    }

    /// Takes the other address away.
    pub(super) fn changes_network_back(&self) {
        self.shell(
            "ip route replace default via 192.168.1.1
             ip address delete 192.168.1.3/24 dev eth0",
        );
    }

    /// Returns whether one ping is answered within [`PATIENCE`].
    pub(super) fn answers(&self, address: &str) -> bool {
        let mut ping = self.client.command("ping");
        let ping = ping.args(["-n", "-c1", "-W", PATIENCE, address]).output();
        ping.unwrap().status.success()
    }

    pub(super) fn reaches(&self, address: &str) {
        let answered = eventually(DEADLINE, || self.answers(address).then_some(()));
        assert!(answered.is_some(), "{address} does not answer");
    }

    pub(super) fn reaches_all_behind(&self) {
        for address in BEHIND {
            self.reaches(address);
        }
    }

    /// Everything that `convoy up` may change at the client.
    pub(super) fn dump(&self) -> String {
        let all = self.shell(
            "ip -o link; ip -brief address
             for family in 4 6; do printf 'rule\\nroute show table all\\n' | ip -$family -batch -; done
             if command -v nft > /dev/null; then nft -s list ruleset | sed -E '/^\\tflags ?(owner)?$/d; /^$/d; s/ # progname .*//'; fi
             cd /proc/sys/net
             grep -rs '' ipv4/conf ipv6/conf ipv4/ip_forward /etc/resolv.conf || true
             find /run/convoy /run/wireguard /var/lib/convoy /etc \
                 -path '/etc*' -printf '%M %u %p -> %l\\n' -o ! -type d -print 2>/dev/null || true",
        );
        // The kernel adds the local route of an IPv6 address late.
        let is_settled = |line: &&str| !line.starts_with("local fd08::");
        let lines = all.lines().filter(is_settled).map(lasting);
        let mut lines: Vec<_> = lines.collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// Requires that nothing is left of any tunnel, not even a process.
    pub(super) fn is_left_as(&self, before: &str) {
        let is_as_before = || (self.dump() == before).then_some(());
        assert!(
            eventually(DEADLINE, is_as_before).is_some(),
            "left behind or missing:\n{}",
            difference(before, &self.dump())
        );
        let others = || processes(&self.client);
        let is_alone = || others().is_empty().then_some(());
        assert!(
            eventually(DEADLINE, is_alone).is_some(),
            "still there: {:?}",
            others()
        );
    }
}

/// A line of `ip -o link` without the interface's number and queue; any other line as it is.
fn lasting(line: &str) -> &str {
    match line.split_once(": ") {
        Some((number, link)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            link.split("qdisc").next().unwrap_or(link)
        }
        _ => line,
    }
}

/// The lines that only one of two texts has.
pub(super) fn difference(before: &str, after: &str) -> String {
    let only = |sign: char, these: &str, those: &str| {
        let those: Vec<_> = those.lines().collect();
        let lines = these.lines().filter(|line| !those.contains(line));
        lines
            .map(|line| format!("{sign} {line}\n"))
            .collect::<String>()
    };
    only('-', before, after) + &only('+', after, before)
}
