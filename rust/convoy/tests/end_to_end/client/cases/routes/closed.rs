//! Traffic that was asked into the tunnel and cannot enter it goes nowhere.

use crate::client::{
    capture::Capture,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};

const BEHIND_6: &str = "2001:db8:ffff::1";
const V4_ONLY: &str = "Endpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/0\n";
const V6_ONLY: &str = "Endpoint = 203.0.113.1:51820\nAllowedIPs = ::/0\n";
const OFF_FOR_NEW: &str = "sysctl -qw net.ipv6.conf.default.disable_ipv6=1";

#[test]
fn where_new_interfaces_have_no_ipv6_it_is_closed_and_told() {
    let Some(world) = World::new() else { return };
    world.shell(OFF_FOR_NEW);
    world.install(include_str!("../inputs/C02-ipv6-leak.conf"));
    let before = world.dump();
    let checked = world.convoy(&["check", "wg0"]).succeeds();
    assert!(checked.stderr.contains("IPv6"), "{checked:?}");
    let up = world.up();
    assert!(
        up.stderr.contains("IPv6 is off for this interface"),
        "{up:?}"
    );
    is_refused(&world);
    world.down();
    world.is_left_as(&before);
    // With an address, and in a tunnel that works.
    world.configure("", EVERYTHING);
    world.up();
    world.warns("IPv6 is off for this interface");
    let capture = Capture::new(&world);
    world.reaches(BEHIND[0]);
    is_refused(&world);
    let seen = capture.seen();
    assert!(!seen.iter().any(|packet| packet.is_inner()), "{seen:?}");
    world.down();
    // Nor do single networks leave outside.
    world.configure("", BEHIND_ONLY);
    world.up();
    world.reaches(BEHIND[0]);
    is_refused(&world);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn an_mtu_that_is_too_small_for_ipv6_closes_it_and_is_named() {
    let Some(world) = World::new() else { return };
    world.install(include_str!("../inputs/C13-mtu-1200.conf"));
    let before = world.dump();
    let checked = world.convoy(&["check", "wg0"]).succeeds();
    assert!(checked.stderr.contains("MTU = 1200"), "{checked:?}");
    let up = world.up();
    assert!(up.stderr.contains("the MTU of 1200 is too small"), "{up:?}");
    is_refused(&world);
    world.down();
    for (address, interface, peer) in [
        ("10.8.0.2/24, fd08::2/64", "MTU = 1279\n", EVERYTHING),
        ("10.8.0.2/24", "MTU = 1200\n", EVERYTHING),
        ("10.8.0.2/24", "MTU = 1200\n", BEHIND_ONLY),
    ] {
        world.configure(interface, peer);
        let text = world.read("wireguard/wg0.conf");
        let text = text.replace("10.8.0.2/24, fd08::2/64", address);
        world.write("wireguard/wg0.conf", &text);
        let checked = world.convoy(&["check", "wg0"]).succeeds();
        assert!(checked.stderr.contains("MTU"), "{checked:?}");
        world.up();
        world.reaches(BEHIND[0]);
        is_refused(&world);
        world.down();
    }
    world.is_left_as(&before);
    // A larger one opens it again.
    world.configure("MTU = 1200\n", EVERYTHING);
    world.up();
    world.configure("MTU = 1400\n", EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    world.reaches_all_behind();
    world.status_becomes("warnings", serde_json::json!([]));
}

#[test]
fn a_default_route_for_one_family_alone_is_told_wherever_one_may_look() {
    let Some(world) = World::new() else { return };
    for (peer, words) in [
        (V4_ONLY, "IPv6 leaves outside the tunnel"),
        (V6_ONLY, "IPv4 leaves outside the tunnel"),
        (
            "Endpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/1, 128.0.0.0/1\n",
            "IPv6 leaves outside the tunnel",
        ),
    ] {
        world.configure("", peer);
        for command in ["check", "doctor"] {
            let said = world.convoy(&[command, "wg0"]);
            let said = format!("{}{}", said.stdout, said.stderr);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(words), "{command}: {said}");
        }
        let up = world.up();
        assert!(up.stderr.contains(words), "{up:?}");
        world.warns(words);
        let doctor = world.convoy(&["doctor", "wg0"]).stdout;
        let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(doctor.contains(words), "{doctor}");
        world.down();
    }
}

#[test]
fn nothing_is_said_where_no_family_leaves_outside() {
    let Some(world) = World::new() else { return };
    for (before, interface, peer) in [
        ("true", "", EVERYTHING),
        ("true", "#convoy: KillSwitch = on\n", V4_ONLY),
        ("true", "", BEHIND_ONLY),
        ("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", "", V4_ONLY),
    ] {
        world.shell(before);
        world.configure(interface, peer);
        let checked = world.convoy(&["check", "--strict", "wg0"]).succeeds();
        assert!(!checked.stderr.contains("leaves outside"), "{checked:?}");
        world.up();
        assert_eq!(
            world.status()["warnings"],
            serde_json::json!([]),
            "{interface}{peer}"
        );
        world.down();
    }
}

/// Requires that IPv6 leaves neither by the tunnel nor by the cable.
fn is_refused(world: &World) {
    let way = world.way(BEHIND_6);
    assert!(
        !way.contains("dev eth0") && !way.contains("dev wg0"),
        "{way}"
    );
    assert!(!world.answers(BEHIND_6));
}
