//! One interface name in two network namespaces.

use super::install;
use crate::client::{
    outcome::Outcome,
    process::{crash, kill_all},
    world::World,
};

/// Runs `convoy` in a second network namespace of the client.
fn in_lab(world: &World, arguments: &[&str]) -> Outcome {
    let mut command = world.client.command("ip");
    command.args(["netns", "exec", "lab"]);
    command.arg(crate::scene::convoy_program()).args(arguments);
    world.start_command(command).wait()
}

/// Requires that no command there reaches the tunnel here, and that each names the reason.
fn is_out_of_reach(world: &World, state: &str) {
    let link = || {
        world.shell("ip -o link show wg0; nft list ruleset; ip rule; cat /run/convoy/wg0.journal")
    };
    let before = link();
    for words in [
        &["up", "wg0"][..],
        &["down", "wg0"],
        &["reload", "wg0"],
        &["pause", "wg0"],
        &["down", "--all"],
    ] {
        let outcome = in_lab(world, words);
        let is_all = words.contains(&"--all");
        assert_eq!(
            outcome.code == Some(0),
            is_all,
            "{state}: {words:?}: {outcome:?}"
        );
        let is_told = outcome.stderr.contains("network namespace");
        let is_question = matches!(words[0], "reload" | "pause");
        // Without a supervisor, there is nobody to ask.
        assert!(is_told || is_question, "{state}: {words:?}: {outcome:?}");
        assert!(
            !outcome.stderr.contains("another process holds"),
            "{outcome:?}"
        );
        assert_eq!(link(), before, "{state}: {words:?}");
    }
}

#[test]
fn a_tunnel_of_another_network_namespace_is_out_of_reach_and_named_as_such() {
    let Some(world) = World::new() else { return };
    install(&world, "C20-two-namespaces.conf", "wg0");
    world.shell(
        "sed -i '/^Address/a #convoy: KillSwitch = on' /etc/wireguard/wg0.conf
         mkdir -p /run/netns; ip netns add lab",
    );
    let before = world.dump();
    world.up();
    is_out_of_reach(&world, "up");
    crash(world.supervisor());
    is_out_of_reach(&world, "without a supervisor");
    world.up();
    kill_all(&world);
    world.shell("ip tuntap add wg0 mode tun");
    is_out_of_reach(&world, "killed");
    world.shell("ip link delete wg0");
    world.down();
    world.is_left_as(&before);
}

#[test]
fn the_other_network_namespace_has_the_name_once_it_is_free() {
    let Some(world) = World::new() else { return };
    install(&world, "C20-two-namespaces.conf", "wg0");
    world.shell("mkdir -p /run/netns; ip netns add lab");
    in_lab(&world, &["up", "wg0"]).succeeds();
    let refused = world.convoy(&["down", "wg0"]).ends_with(1);
    assert!(refused.stderr.contains("ip netns exec lab"), "{refused:?}");
    in_lab(&world, &["down", "wg0"]).succeeds();
    world.up();
    world.down();
    // What is left of a namespace that is gone is in nobody's way.
    in_lab(&world, &["up", "wg0"]).succeeds();
    world.shell("kill -9 $(ip netns pids lab); sleep 0.1; ip netns delete lab");
    world.up();
    world.down();
}
