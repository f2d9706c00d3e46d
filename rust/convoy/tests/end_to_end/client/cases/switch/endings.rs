//! Something other than its user ends a tunnel.

use std::thread;

use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

use super::{BEHIND, EVERYTHING, Leaks, ON, OUTSIDE, PERSISTENT, World};
use crate::scene::DEADLINE;

/// Ends the tunnel whose process this is.
type Ending = fn(&World, Pid);

const ENDINGS: [(&str, Ending); 8] = [
    ("SIGTERM", |_, pid| kill(pid, Signal::SIGTERM).unwrap()),
    ("SIGINT", |_, pid| kill(pid, Signal::SIGINT).unwrap()),
    ("SIGKILL", |_, pid| kill(pid, Signal::SIGKILL).unwrap()),
    ("socket removed", |world, _| {
        world.shell("rm /run/wireguard/wg0.sock");
    }),
    ("sockets removed", |world, _| {
        world.shell("rm -r /run/wireguard /run/convoy/wg0.tunnel");
    }),
    ("interface deleted", |world, _| {
        world.shell("ip link delete wg0");
    }),
    ("interface deleted and process killed", |world, pid| {
        kill(pid, Signal::SIGSTOP).unwrap();
        world.shell("ip link delete wg0");
        kill(pid, Signal::SIGKILL).unwrap();
    }),
    ("interface deleted, process hangs", |world, pid| {
        kill(pid, Signal::SIGSTOP).unwrap();
        world.shell("ip link delete wg0");
    }),
];

#[test]
fn whatever_ends_the_tunnel_the_switch_stays_closed_and_the_tunnel_comes_back() {
    thread::scope(|scope| {
        for (number, endings) in ENDINGS.chunks(2).enumerate() {
            let switch = [ON, PERSISTENT][number % 2];
            scope.spawn(move || comes_back_after(switch, endings));
        }
    });
}

fn comes_back_after(switch: &str, endings: &[(&str, Ending)]) {
    let Some(world) = World::new() else { return };
    world.configure(switch, EVERYTHING);
    let leaks = Leaks::watch(&world);
    let before = world.dump();
    for (name, end) in endings {
        let running = world.start(&["up", "wg0", "-f"]);
        world.status_becomes("state", "up");
        world.reaches_all_behind();
        let supervisor = world.supervisor();
        let events = world.start(&["events", "wg0", "--json"]);
        let hears = || {
            world.convoy(&["reload", "wg0"]).succeeds();
            events.said().contains("reloaded").then_some(())
        };
        assert!(eventually(DEADLINE, hears).is_some(), "{name}");
        leaks.begin();
        let tunnel = world.tunnel();
        end(&world, tunnel);
        is_replaced(&world, tunnel, name);
        for outside in OUTSIDE {
            assert!(!world.answers(outside), "{name}");
        }
        world.reaches_all_behind();
        leaks.none(name);
        assert_eq!(world.supervisor(), supervisor, "{name}");
        let warnings = world.status()["warnings"].to_string();
        assert!(warnings.contains("has died once"), "{name}: {warnings}");
        assert!(events.said().contains("tunnel_died"), "{name}");
        assert!(events.said().contains("tunnel_restarted"), "{name}");
        assert!(!events.said().contains("kill_switch_opened"), "{name}");
        drop(events);
        world
            .convoy(&["down", "wg0", "--open-kill-switch"])
            .succeeds();
        running.wait().succeeds();
        leaks.begins();
        // `rm -r` of the directory is not ours to undo.
        world.shell("mkdir -p /run/wireguard");
        world.is_left_as(&before);
    }
}

#[test]
fn a_tunnel_that_is_ended_again_and_again_leaks_nothing() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    let leaks = Leaks::watch(&world);
    world.up();
    world.reaches_all_behind();
    leaks.begin();
    for (name, end) in &ENDINGS[..3] {
        let tunnel = world.tunnel();
        end(&world, tunnel);
        world.shell("ip link delete wg0 2>/dev/null || true");
        is_replaced(&world, tunnel, name);
        world.reaches(BEHIND[0]);
        leaks.none(name);
    }
    world.down();
    leaks.begins();
}

#[test]
fn only_a_request_opens_it_however_the_supervisor_gets_it() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    let before = world.dump();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let running = world.start(&["up", "wg0", "-f"]);
        world.status_becomes("state", "up");
        world.reaches(BEHIND[0]);
        assert!(!world.answers(OUTSIDE[0]));
        running.signal(signal);
        running.wait().succeeds();
        world.reaches(OUTSIDE[0]);
        world.is_left_as(&before);
    }
}

#[test]
fn a_name_that_somebody_else_takes_meanwhile_is_told_and_the_switch_stays_closed() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    let leaks = Leaks::watch(&world);
    world.up();
    world.reaches_all_behind();
    leaks.begin();
    let tunnel = world.tunnel();
    kill(tunnel, Signal::SIGSTOP).unwrap();
    world.shell("ip link delete wg0; ip link add wg0 type veth peer name other");
    kill(tunnel, Signal::SIGCONT).unwrap();
    let is_told = || {
        let warnings = world.status()["warnings"].to_string();
        warnings.contains("about to be started").then_some(())
    };
    assert!(
        eventually(DEADLINE, is_told).is_some(),
        "{}",
        world.status()
    );
    leaks.none("taken");
    world.shell("ip link delete wg0");
    let answers = || world.answers(BEHIND[0]).then_some(());
    assert!(eventually(3 * DEADLINE, answers).is_some());
    leaks.none("free again");
    world.down();
    leaks.begins();
}

/// Waits until another process carries the packets.
fn is_replaced(world: &World, former: Pid, name: &str) {
    let is_another = || {
        let now = world.status()["tunnel_pid"].as_i64();
        now.filter(|pid| *pid != i64::from(former.as_raw()))
    };
    assert!(eventually(3 * DEADLINE, is_another).is_some(), "{name}");
}
