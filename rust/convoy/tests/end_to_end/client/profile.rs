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

#[test]
fn a_disk_that_is_full_is_named_before_anything_is_measured() {
    let Some(world) = World::with(&["perf", "strace"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.up();
    world.shell("mkdir /run/full && mount -t tmpfs -o size=32k none /run/full");
    let refused = world.convoy(&["profile", "wg0", "--secs=1", "--out=/run/full/profile"]);
    refused.fails_with("/run/full/profile/.probe: No space left on device");
    assert_eq!(world.shell("ls /run/full"), "");
}
