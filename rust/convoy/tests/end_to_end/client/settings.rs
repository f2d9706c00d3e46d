//! Tests that the host follows what `wg set` changes.

use std::time::Duration;

use convoy_lab::{Turn, eventually};

use super::{
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::scene::DEADLINE;

/// How long the tunnel may carry nothing.
const PAUSE: Duration = Duration::from_secs(2);
const CLOSED: &str = "#convoy: KillSwitch = on\n";

#[test]
fn another_mark_takes_rules_routes_and_kill_switch_along() {
    let _alone = Turn::alone("it bounds how long packets pause");
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    let before = world.dump();
    world.up();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    is_marked(&world, "0xca6c", "51820");
    world.shell("wg set wg0 fwmark 0x1234");
    is_marked(&world, "0x1234", "4660");
    streams.iter().for_each(Stream::flows);
    // A file that says what it said before leaves it.
    world.convoy(&["reload", "wg0"]).succeeds();
    is_marked(&world, "0x1234", "4660");
    // Another one changes it.
    world.configure(&format!("{CLOSED}FwMark = 0x55\n"), EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    is_marked(&world, "0x55", "85");
    streams.iter().for_each(Stream::flows);
    Stream::never_paused(&streams, PAUSE);
    drop(streams);
    world.configure(CLOSED, EVERYTHING);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_mark_that_no_route_needs_stays_when_the_file_is_read_again() {
    let Some(world) = World::new() else { return };
    world.configure("", BEHIND_ONLY);
    world.up();
    world.shell("wg set wg0 fwmark 0x1234");
    world.convoy(&["reload", "wg0"]).succeeds();
    assert_eq!(world.wg(0)[3], "0x1234");
    world.reaches(BEHIND[0]);
}

#[test]
fn another_port_is_used_at_once_even_below_1024() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    let before = world.dump();
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    for port in ["51998", "500"] {
        world.shell(&format!("wg set wg0 listen-port {port}"));
        assert_eq!(world.wg(0)[2], port);
        let seen = || {
            let endpoints = world.shell_at(&world.server, "wg show wg0 endpoints");
            endpoints
                .contains(&format!("192.168.1.2:{port}"))
                .then_some(())
        };
        assert!(eventually(DEADLINE, seen).is_some(), "{port}");
        stream.flows();
    }
    drop(stream);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_port_that_is_taken_is_refused_and_the_tunnel_goes_on() {
    let Some(world) = World::new() else { return };
    world.configure("ListenPort = 51999\n", EVERYTHING);
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    let bind = || std::net::UdpSocket::bind("0.0.0.0:51998").unwrap();
    let _taken = world.client.run(bind).unwrap();
    let refused = world.shell("wg set wg0 listen-port 51998 2>&1 || echo refused");
    assert!(refused.contains("refused"), "{refused}");
    stream.flows();
    assert_eq!(world.wg(0)[2], "51999");
}

/// Requires that packets go by this mark and table, and by no other.
fn is_marked(world: &World, mark: &str, table: &str) {
    let rule = format!("not from all fwmark {mark} lookup {table}");
    let mut last = String::new();
    let is_so = || {
        last = world.shell("ip -4 rule; ip -6 rule");
        // For the tunnel's networks and for all others, in both families.
        let is_only = last.matches(&rule).count() == 4 && last.matches("fwmark").count() == 4;
        is_only.then_some(())
    };
    assert!(eventually(DEADLINE, is_so).is_some(), "no {rule} in {last}");
    assert_eq!(world.wg(0)[3], mark);
    let marked = world.shell(&format!("ip route get 203.0.113.1 mark {mark}"));
    assert!(marked.contains("dev eth0"), "{marked}");
    let unmarked = world.shell("ip route get 203.0.113.1");
    assert!(unmarked.contains("dev wg0"), "{unmarked}");
}
