//! `convoy profile` of a tunnel that has a supervisor.

use super::world::{BEHIND, EVERYTHING, World};

#[test]
fn a_tunnel_is_profiled_by_the_name_of_its_interface() {
    let Some(world) = World::with(&["perf", "strace"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    let pings = format!("timeout 60 ping -qi 0.005 {} > /dev/null 2>&1 &", BEHIND[0]);
    world.shell(&pings);
    let arguments = ["profile", "wg0", "--secs=1", "--out=/run/profile"];
    world.convoy(&arguments).succeeds();
    let report = world.shell("cat /run/profile/report.md");
    let tunnel = format!("wg0, process {}", world.tunnel());
    assert!(report.contains(&tunnel), "{report}");
}
