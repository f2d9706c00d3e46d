//! A pause opens everything for a while: for a captive portal.

use convoy_lab::eventually;

use super::{
    capture::Capture,
    process::crash,
    world::{BEHIND, EVERYTHING, World},
};
use crate::scene::DEADLINE;

const OUTSIDE: [&str; 2] = ["203.0.113.254", "2001:db8:1::fe"];

#[test]
fn a_pause_opens_everything_until_resume() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches_all_behind();
    let up = world.dump();
    assert!(!world.answers(OUTSIDE[0]));
    let capture = Capture::new(&world);
    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    for outside in OUTSIDE {
        world.reaches(outside);
    }
    capture.until(|packet| packet.is_leak());
    assert_eq!(world.read("resolv.conf"), "nameserver 192.168.1.1\n");
    let status = world.status();
    assert_eq!(status["state"], "paused");
    assert!(status["paused_until"].is_u64(), "{status}");
    let text = world.convoy(&["status", "wg0"]).stdout;
    assert!(text.contains("paused"), "{text}");
    world.convoy(&["resume", "wg0"]).succeeds();
    assert_eq!(world.dump(), up);
    assert!(!world.answers(OUTSIDE[0]));
    world.reaches_all_behind();
    world.status_becomes("state", "up");
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_pause_ends_by_itself() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    let up = world.dump();
    world.convoy(&["pause", "wg0", "--for", "2s"]).succeeds();
    assert!(world.answers(OUTSIDE[0]));
    let is_over = || (world.dump() == up).then_some(());
    assert!(eventually(DEADLINE, is_over).is_some());
    assert!(!world.answers(OUTSIDE[0]));
    world.status_becomes("state", "up");
    world.reaches(BEHIND[0]);
}

#[test]
fn a_persistent_kill_switch_is_closed_once_a_paused_tunnel_is_down() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = persistent\n", EVERYTHING);
    let before = world.dump();
    for is_killed in [false, true] {
        world.up();
        world.convoy(&["pause", "wg0", "--for", "1h"]).succeeds();
        assert!(world.answers(OUTSIDE[0]));
        if is_killed {
            crash(world.supervisor());
        }
        let said = world.convoy(&["down", "wg0"]).succeeds().stderr;
        assert!(
            said.contains("the kill switch of wg0 stays closed"),
            "{said}"
        );
        assert!(!world.answers(OUTSIDE[0]), "killed: {is_killed}");
    }
    let open = ["down", "wg0", "--open-kill-switch"];
    world.convoy(&open).succeeds();
    world.is_left_as(&before);
}

#[test]
fn a_tunnel_that_is_paused_can_go_down() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    world.convoy(&["reload", "wg0"]).succeeds();
    world.reaches(OUTSIDE[0]);
    world.down();
    world.is_left_as(&before);
    for command in [&["pause", "wg0", "--for", "5m"][..], &["resume", "wg0"]] {
        world.convoy(command).fails_with("is not up");
    }
}
