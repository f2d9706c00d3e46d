//! The kill switch opens only when its user asks.

mod boot;
mod endings;
mod pauses;
mod table;
mod takeovers;

use super::super::{
    capture::{Capture, Seen},
    kill_switch::Chatter,
    world::{BEHIND, EVERYTHING, World},
};

const ON: &str = "#convoy: KillSwitch = on\n";
const PERSISTENT: &str = "#convoy: KillSwitch = persistent\n";
/// On the way to the server, not behind the tunnel.
const OUTSIDE: [&str; 2] = ["203.0.113.254", "2001:db8:1::fe"];

/// Every program of a client with two cables tries to get out, and both are listened to.
struct Leaks {
    cables: [Capture; 2],
    _chatter: Chatter,
}

impl Leaks {
    /// Call it while the kill switch is open: it waits for what leaves.
    fn watch(world: &World) -> Self {
        world
            .lab()
            .veth(
                &world.client,
                "eth1",
                &["192.168.2.2/24"],
                &world.net,
                "lan2",
                &["192.168.2.1/24"],
                1_500,
            )
            .unwrap();
        // Packets that wait for a neighbor pass no rules any more.
        world.shell("ip route add default via 192.168.2.1 metric 1000");
        let cables = ["lan", "lan2"].map(|cable| Capture::on(world, cable));
        let chatter = Chatter::start_on(world, &["eth0", "eth1"]);
        for cable in &cables {
            cable.until(|packet| packet.is_leak());
        }
        Self {
            cables,
            _chatter: chatter,
        }
    }

    /// Ignores what has passed until now.
    fn begin(&self) {
        for cable in &self.cables {
            cable.seen();
        }
    }

    /// Requires that nothing has leaked since the last call of either.
    fn none(&self, when: &str) {
        for cable in &self.cables {
            cable.leaks_nothing(when);
        }
    }

    /// Returns whether something has leaked since the last call of any of these.
    fn any(&self) -> bool {
        let has_leaked = |cable: &Capture| cable.seen().iter().any(Seen::is_leak);
        self.cables.iter().any(has_leaked)
    }

    /// Waits until something leaves.
    fn begins(&self) {
        for cable in &self.cables {
            cable.until(|packet| packet.is_leak());
        }
    }
}
