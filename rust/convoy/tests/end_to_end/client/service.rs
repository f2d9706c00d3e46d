//! Commands that a service manager runs: the kill switch before the tunnel, and the time between a crash and the next
//! start.

use super::{
    capture::Capture,
    process::{crash, kill_all},
    world::{BEHIND, EVERYTHING, World},
};

const OUTSIDE: &str = "203.0.113.254";

#[test]
fn a_persistent_kill_switch_closes_before_the_tunnel_is_up() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = persistent\n", EVERYTHING);
    let before = world.dump();
    let capture = Capture::new(&world);
    world
        .convoy(&["up", "wg0", "--only-kill-switch"])
        .succeeds();
    assert!(!world.client.link().exists("wg0"));
    assert!(!world.answers(OUTSIDE) && !world.answers(BEHIND[0]));
    world.up();
    world.reaches_all_behind();
    capture.leaks_nothing("up");
    world
        .convoy(&["down", "wg0", "--open-kill-switch"])
        .succeeds();
    world.is_left_as(&before);
}

#[test]
fn a_kill_switch_that_is_not_persistent_waits_for_the_tunnel() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world
        .convoy(&["up", "wg0", "--only-kill-switch"])
        .succeeds();
    world.is_left_as(&before);
    world.reaches(OUTSIDE);
}

#[test]
fn between_a_crash_and_the_next_start_the_kill_switch_stays_closed() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    let after_crash = || world.convoy(&["down", "wg0", "--after-crash"]).succeeds();
    // Nothing was up.
    after_crash();
    world.is_left_as(&before);
    world.up();
    world.reaches(BEHIND[0]);
    let up = world.dump();
    // Nothing has crashed.
    after_crash();
    assert_eq!(world.dump(), up);
    crash(world.supervisor());
    after_crash();
    assert!(!world.client.link().exists("wg0"));
    assert!(!world.shell("ip rule").contains("51820"));
    assert!(!world.answers(OUTSIDE));
    world.up();
    world.reaches_all_behind();
    kill_all(&world);
    after_crash();
    assert!(!world.answers(OUTSIDE));
    world.up();
    world.reaches_all_behind();
    assert_eq!(world.dump(), up);
    world.down();
    world.is_left_as(&before);
}
