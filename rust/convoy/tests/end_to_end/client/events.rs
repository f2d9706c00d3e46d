//! `convoy events`: what happens, as it happens.

use convoy_lab::eventually;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    outcome::Running,
    process::crash,
    world::{BEHIND, EVERYTHING, World},
};
use crate::{scene::DEADLINE, twins::public_key};

const OFFICE: &str = "# friendly_name = Office\n";

#[test]
fn events_tell_of_the_tunnel_its_peers_and_the_network() {
    let Some(world) = World::new() else { return };
    let peer = format!("{OFFICE}{EVERYTHING}");
    world.configure("#convoy: KillSwitch = on\n", &peer);
    let mut events = Events::follow(&world);
    events.says("wg0: it is not up; waiting");
    world.up();
    events.until("up");
    world.reaches(BEHIND[0]);
    let up = events.until("peer_up");
    assert_eq!(up["peer"], public_key(2), "{up}");
    assert_eq!(up["name"], "Office");
    assert_eq!(up["message"], "Office is up at 203.0.113.1:51820");

    world.shell_at(
        &world.server,
        "wg set wg0 listen-port 51821; ping -c 1 10.8.0.2",
    );
    let moved = events.until("peer_moved");
    assert_eq!(moved["from"], "203.0.113.1:51820", "{moved}");
    assert_eq!(moved["endpoint"], "203.0.113.1:51821", "{moved}");

    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    assert_eq!(events.until("paused")["seconds"], 300);
    events.until("kill_switch_opened");
    world.convoy(&["resume", "wg0"]).succeeds();
    events.until("resumed");
    events.until("kill_switch_closed");
    world.convoy(&["reload", "wg0"]).succeeds();
    events.until("reloaded");

    world.shell("ip link set eth0 down");
    events.until("network_changed");
    world.down();
    let down = events.until("down");
    assert_eq!(down["reason"], "as requested", "{down}");
    assert!(
        down["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
}

#[test]
fn events_tell_of_processes_that_die_and_are_replaced() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let mut events = Events::follow(&world);
    events.connects(&world);
    world.reaches(BEHIND[0]);
    events.until("peer_up");
    crash(world.tunnel());
    events.until("tunnel_died");
    events.until("tunnel_restarted");
    world.reaches(BEHIND[0]);
    events.until("peer_up");
    crash(world.supervisor());
    events.until("supervisor_died");
    world.up();
    events.until("supervisor_restarted");
    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    events.until("paused");
    // A terminal's text has the same words.
    let text = Events::start(&world, &["events"]);
    text.connects(&world);
    world.convoy(&["resume", "wg0"]).succeeds();
    text.says(" wg0: the pause is over\n");
}

#[test]
fn a_subscriber_that_hangs_delays_nobody() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let mut hanging: Vec<_> = (0..8).map(|_| Events::follow(&world)).collect();
    for events in &mut hanging {
        events.connects(&world);
        events.running.signal(Signal::SIGSTOP);
    }
    let one_too_many = Events::follow(&world);
    one_too_many.says("8 programs follow its events already; waiting");
    for _ in 0..3 {
        world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
        world.convoy(&["resume", "wg0"]).succeeds();
    }
    drop(hanging);
    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    one_too_many.connects(&world);
    world.down();
}

#[test]
#[ignore = "make interop"]
fn a_peer_that_no_longer_answers_is_down_after_three_minutes() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let mut events = Events::follow(&world);
    events.connects(&world);
    world.reaches(BEHIND[0]);
    events.until("peer_up");
    world.shell_at(&world.net, "ip route add blackhole 203.0.113.1/32");
    let is_down = || {
        assert!(!world.answers(BEHIND[0]));
        events.find("peer_down")
    };
    let down = eventually(15 * DEADLINE, is_down).expect("it is down");
    assert_eq!(down["endpoint"], "203.0.113.1:51820", "{down}");
    world.shell_at(&world.net, "ip route delete blackhole 203.0.113.1/32");
    world.reaches(BEHIND[0]);
    events.until("peer_up");
}

/// A `convoy events` that runs.
pub(super) struct Events {
    running: Running,
    /// Events that were found, and those before them.
    seen: usize,
}

impl Events {
    pub(super) fn follow(world: &World) -> Self {
        Self::start(world, &["events", "wg0", "--json"])
    }

    fn start(world: &World, arguments: &[&str]) -> Self {
        let running = world.start(arguments);
        Self { running, seen: 0 }
    }

    /// The next event of this kind, if it is there.
    fn find(&mut self, kind: &str) -> Option<Value> {
        let said = self.running.said();
        let lines = said.split_inclusive('\n').filter(|it| it.ends_with('\n'));
        let lines = lines.filter(|line| line.starts_with('{')).enumerate();
        for (number, line) in lines.skip(self.seen) {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["interface"], "wg0", "{line}");
            if event["event"] == kind {
                self.seen = number + 1;
                return Some(event);
            }
        }
        None
    }

    /// Waits for the next event of this kind.
    pub(super) fn until(&mut self, kind: &str) -> Value {
        let found = eventually(DEADLINE, || self.find(kind));
        found.unwrap_or_else(|| panic!("no {kind} after {}: {}", self.seen, self.running.said()))
    }

    /// Waits until it has said this.
    fn says(&self, words: &str) {
        let is_said = || self.running.said().contains(words).then_some(());
        assert!(
            eventually(DEADLINE, is_said).is_some(),
            "no {words:?} in {}",
            self.running.said()
        );
    }

    /// Waits until it hears of reloads.
    pub(super) fn connects(&self, world: &World) {
        let before = self.running.said().len();
        let hears = || {
            world.convoy(&["reload", "wg0"]).succeeds();
            (self.running.said().len() > before).then_some(())
        };
        assert!(eventually(DEADLINE, hears).is_some());
    }
}
