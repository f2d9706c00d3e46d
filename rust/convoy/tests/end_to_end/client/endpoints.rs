//! Several endpoints, and networks that change.

use std::time::Instant;

use convoy_lab::eventually;

use super::{
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::scene::DEADLINE;

const SEVERAL: &str = "Endpoint = 203.0.113.1:51820\n#convoy: Endpoints = 203.0.113.2:51820, \
     [2001:db8:1::2]:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n";

#[test]
fn the_second_endpoint_is_used_when_the_first_is_dead_and_the_first_again_in_another_network() {
    let Some(world) = World::new() else { return };
    dies(&world, "203.0.113.1/32");
    world.configure("", SEVERAL);
    let before = world.dump();
    world.up();
    assert_eq!(world.endpoint(), "203.0.113.1:51820");
    connects(&world);
    assert_eq!(world.endpoint(), "203.0.113.2:51820");
    lives(&world, "203.0.113.1/32");
    world.changes_network();
    world.is_at("203.0.113.1:51820");
    world.reaches_all_behind();
    world.down();
    world.changes_network_back();
    world.is_left_as(&before);
}

#[test]
#[ignore = "make interop"]
fn a_tunnel_whose_endpoint_dies_moves_on_to_one_of_the_other_family() {
    let Some(world) = World::new() else { return };
    world.configure("", SEVERAL);
    world.up();
    world.reaches(BEHIND[0]);
    assert_eq!(world.endpoint(), "203.0.113.1:51820");
    dies(&world, "203.0.113.1/32");
    dies(&world, "203.0.113.2/32");
    // The server hears no answer, and so calls again and again, a second before the client would.
    world.shell_at(&world.server, "ping -c3 -i0.5 -W1 10.8.0.2 || true");
    // A session that is in use notices after 15 s, and each endpoint gets 15 s.
    connects(&world);
    assert_eq!(world.endpoint(), "[2001:db8:1::2]:51820");
}

#[test]
fn after_the_cable_was_out_packets_flow_again() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    for _ in 0..2 {
        world.shell("ip link set eth0 down");
        assert!(!world.answers(BEHIND[0]));
        world.shell("ip link set eth0 up");
        // What a DHCP client and a router advertisement do.
        world.shell(
            "ip address replace 2001:db8:2::2/64 dev eth0 nodad; \
             ip route replace default via 192.168.1.1; ip -6 route replace default via 2001:db8:2::1",
        );
        let up = Instant::now();
        streams.iter().for_each(Stream::flows);
        eprintln!("packets flow after {:?}", up.elapsed());
    }
    drop(streams);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn in_another_network_packets_flow_on_from_the_new_address() {
    let Some(world) = World::new() else { return };
    for peer in [EVERYTHING, BEHIND_ONLY] {
        world.configure("", peer);
        let before = world.dump();
        world.up();
        let stream = Stream::start(&world, BEHIND[0]);
        world.changes_network();
        let at_server = || world.shell_at(&world.server, "wg show wg0 endpoints");
        let is_new = || at_server().contains("\t192.168.1.3:").then_some(());
        assert!(eventually(DEADLINE, is_new).is_some(), "{}", at_server());
        stream.flows();
        drop(stream);
        world.down();
        world.changes_network_back();
        world.is_left_as(&before);
    }
}

#[test]
fn a_narrower_route_lowers_the_mtu() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    assert!(world.shell("ip link show wg0").contains("mtu 1420"));
    world.shell("ip link set eth0 mtu 1400");
    let has_followed = || {
        let link = world.shell("ip link show wg0");
        link.contains("mtu 1320").then_some(())
    };
    assert!(eventually(DEADLINE, has_followed).is_some());
    world.status_becomes("mtu", 1_320);
}

/// Drops what goes to an address on its way.
fn dies(world: &World, address: &str) {
    world.shell_at(&world.net, &format!("ip route add blackhole {address}"));
}

fn lives(world: &World, address: &str) {
    world.shell_at(&world.net, &format!("ip route delete blackhole {address}"));
}

fn connects(world: &World) {
    let is_up = || world.answers(BEHIND[0]).then_some(());
    assert!(
        eventually(4 * DEADLINE, is_up).is_some(),
        "{}",
        world.status()
    );
}
