//! Rules of other programs, and the host's own addresses.

use convoy_lab::eventually;

use crate::{
    client::world::{EVERYTHING, World},
    scene::DEADLINE,
};

/// As Cilium has it, and as hosts with VRFs have it.
const MOVED: [&str; 2] = [
    "for f in -4 -6; do ip $f rule add from all lookup local pref 100; ip $f rule del pref 0; done",
    "for f in -4 -6; do ip $f rule add l3mdev pref 1000 || true
     ip $f rule add from all lookup local pref 32765; ip $f rule del pref 0; done",
];

#[test]
fn the_hosts_own_addresses_are_found_wherever_their_rule_is() {
    for moved in MOVED {
        let Some(world) = World::new() else { return };
        world.shell(moved);
        world.install(include_str!("../inputs/C01-local-table-moved.conf"));
        let before = world.dump();
        world.up();
        finds_itself(&world);
        world.down();
        world.is_left_as(&before);
        world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
        world.up();
        finds_itself(&world);
        world.reaches_all_behind();
        // Each rule comes back in its place.
        let rules = world.shell("ip rule");
        let ours = |line: &&str| line.contains("51820") || line.contains("suppress_prefixlength");
        for rule in rules.lines().filter(ours) {
            let (priority, rule) = rule.split_once(':').unwrap();
            world.shell(&format!("ip rule del pref {priority} {rule}"));
            let is_back = || (world.shell("ip rule") == rules).then_some(());
            let now = || world.shell("ip rule");
            assert!(eventually(DEADLINE, is_back).is_some(), "{rules}{}", now());
        }
        world.reaches_all_behind();
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn a_tunnel_that_is_up_moves_its_rules_behind_the_hosts_own_addresses() {
    let Some(world) = World::new() else { return };
    world.shell(
        "ip rule add from all lookup 52 pref 5270; ip -6 rule add from all lookup 52 pref 5270",
    );
    world.configure("", EVERYTHING);
    world.up();
    world.shell(MOVED[0]);
    finds_itself(&world);
    world.shell("for f in -4 -6; do ip $f rule add from all lookup local pref 6000; ip $f rule del pref 100; done");
    // The rules of each family move by themselves.
    let is_itself = || (world.answers("127.0.0.1") && world.answers("::1")).then_some(());
    assert!(
        eventually(DEADLINE, is_itself).is_some(),
        "{}",
        world.shell("ip rule")
    );
    finds_itself(&world);
    world.reaches_all_behind();
}

#[test]
fn a_route_to_the_endpoint_through_the_tunnel_is_told_until_it_is_gone() {
    let Some(world) = World::new() else { return };
    world.configure("Table = off\n", EVERYTHING);
    world.up();
    world.shell("ip route add 198.51.100.1 dev wg0; ip route add 203.0.113.1 dev wg0");
    assert!(!world.answers("198.51.100.1"));
    world.warns("routed back into it");
    let found = format!("{:?}", world.convoy(&["doctor", "wg0", "--json"]));
    assert!(found.contains("would go into the tunnel itself"), "{found}");
    world.shell("ip route del 203.0.113.1 dev wg0");
    world.reaches("198.51.100.1");
    let is_past = || (world.status()["warnings"] == serde_json::json!([])).then_some(());
    assert!(
        eventually(DEADLINE, is_past).is_some(),
        "{}",
        world.status()
    );
}

fn finds_itself(world: &World) {
    for own in ["127.0.0.1", "192.168.1.2", "::1", "2001:db8:2::2"] {
        assert!(world.way(own).contains("dev lo"), "{}", world.way(own));
        assert!(world.answers(own), "{own}");
    }
}
