//! The tunnel's process has no `CAP_NET_ADMIN`: its supervisor marks its sockets.

use std::net::UdpSocket;

use convoy_lab::eventually;
use nix::sys::signal::{Signal, kill};

use super::Inside;
use crate::{
    client::{
        process::crash,
        stream::Stream,
        world::{BEHIND, EVERYTHING, World},
    },
    confinement::{bits, statuses},
    scene::DEADLINE,
};

/// Its number (capabilities(7)).
const CAP_NET_ADMIN: u64 = 1 << 12;

/// With a mark that no rule but the tunnel's own knows.
const MARKED: &str = "FwMark = 0x1234\nListenPort = 40000\n#convoy: KillSwitch = on\n";

#[test]
fn it_changes_neither_addresses_routes_rules_nor_marks() {
    let Some(world) = World::new() else { return };
    world.configure(MARKED, EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    let state = || world.shell("ip -o address; ip route show table all; ip rule; ip -o link");
    let before = state();
    for status in statuses(world.tunnel()) {
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let has_it = |set: &&str| bits(&status, set) & CAP_NET_ADMIN != 0;
        assert!(!sets.iter().any(has_it), "{status}");
    }
    let mut inside = Inside::of(world.tunnel());
    let (dgram, raw) = (libc::SOCK_DGRAM as u64, libc::SOCK_RAW as u64);
    let inet = libc::AF_INET as u64;
    let socket = inside.call(libc::SYS_socket, &[inet, dgram, 0]).unwrap();
    for option in [libc::SO_MARK, libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        let value = inside.put(&0x1234_u32.to_ne_bytes());
        let (level, option) = (libc::SOL_SOCKET as u64, option as u64);
        let set = inside.call(libc::SYS_setsockopt, &[socket, level, option, value, 4]);
        assert_eq!(set.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
    let netlink = libc::AF_NETLINK as u64;
    let socket = inside.call(libc::SYS_socket, &[netlink, raw, 0]).unwrap();
    for message in changes() {
        let length = message.len() as u64;
        let message = inside.put(&message);
        // The kernel takes the message, and refuses what it asks for, before the call returns.
        let sent = inside.call(libc::SYS_sendto, &[socket, message, length, 0, 0, 0]);
        assert_eq!(sent.unwrap(), length);
    }
    drop(inside);
    assert_eq!(state(), before);
    world.reaches(BEHIND[0]);
}

/// Requests of rtnetlink: an address and a route on loopback, a rule, and loopback down.
fn changes() -> [Vec<u8>; 4] {
    const CREATE: u16 = 0x400;
    let inet = u8::try_from(libc::AF_INET).unwrap();
    let address = [10, 99, 0, 1];
    let attribute = |kind: u16, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap();
        [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat()
    };
    let request = |kind: u16, flags: u16, body: &[&[u8]]| {
        let body = body.concat();
        let length = u32::try_from(16 + body.len()).unwrap();
        let flags = (1 | flags).to_ne_bytes();
        let numbers = [0; 8];
        [
            &length.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags,
            &numbers,
            &body,
        ]
        .concat()
    };
    let one = 1_u32.to_ne_bytes();
    [
        // ifaddrmsg: family, length, flags, scope, interface; then IFA_LOCAL.
        request(
            20,
            CREATE,
            &[&[inet, 32, 0, 0], &one, &attribute(2, &address)],
        ),
        // rtmsg: …, main, static, universe, unicast; then RTA_DST and RTA_OIF.
        request(
            24,
            CREATE,
            &[
                &[inet, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0],
                &attribute(1, &address),
                &attribute(4, &one),
            ],
        ),
        // fib_rule_hdr: …, main, to the table.
        request(32, CREATE, &[&[inet, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]]),
        // ifinfomsg: loopback, no flags, of which IFF_UP changes.
        request(16, 0, &[&[0; 4], &one, &[0; 4], &one]),
    ]
}

#[test]
fn another_mark_or_port_takes_effect_or_is_refused_with_the_reason() {
    let Some(world) = World::new() else { return };
    world.configure(MARKED, EVERYTHING);
    world.up();
    world.reaches_all_behind();
    let bound = world
        .client
        .run(|| UdpSocket::bind("0.0.0.0:40404").unwrap());
    let _bound = bound.unwrap();
    for (words, field, shown) in [
        ("fwmark 0x77", 4, "0x77"),
        ("listen-port 41000", 3, "41000"),
        ("listen-port 443 fwmark 0x78", 3, "443"),
        ("fwmark 0x1234", 4, "0x1234"),
    ] {
        world.shell(&format!("wg set wg0 {words}"));
        assert_eq!(world.wg(0)[field - 1], shown, "{words}");
        world.reaches_all_behind();
    }
    let refused = world.shell("wg set wg0 listen-port 40404 2>&1 || true");
    assert!(refused.contains("in use"), "{refused}");
    world.reaches_all_behind();
    // The sockets are closed, and opened again with the mark.
    world.shell("ip link set wg0 down; ip link set wg0 up");
    world.reaches_all_behind();
    assert_eq!(world.wg(0)[2..4], ["443", "0x1234"]);
    world.configure(&MARKED.replace("0x1234", "0x99"), EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    world.reaches_all_behind();
    assert_eq!(world.wg(0)[3], "0x99");
}

#[test]
fn whatever_becomes_of_the_supervisor_packets_flow_and_the_next_one_marks() {
    let Some(world) = World::new() else { return };
    world.configure(MARKED, EVERYTHING);
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    stream.flows();
    let supervisor = world.supervisor();
    kill(supervisor, Signal::SIGUSR2).unwrap();
    // Also while it is being replaced.
    world.shell("wg set wg0 fwmark 0x77");
    world.status_becomes("state", "up");
    stream.flows();
    world.shell("ip link set wg0 down; ip link set wg0 up");
    world.reaches_all_behind();
    stream.flows();
    crash(world.supervisor());
    stream.flows();
    // What would need a mark waits for a supervisor, for a bounded time, and changes nothing.
    let refused = world.shell("wg set wg0 listen-port 41000 2>&1 || true");
    assert!(!refused.is_empty());
    stream.flows();
    world.shell("ip link set wg0 down; ip link set wg0 up");
    world.up();
    world.reaches_all_behind();
    world.shell("wg set wg0 fwmark 0x78 listen-port 41000");
    world.reaches_all_behind();
    stream.flows();
    assert_eq!(world.wg(0)[2..4], ["41000", "0x78"]);
}

#[test]
fn the_tunnel_that_is_started_in_place_of_a_dead_one_is_marked_too() {
    let Some(world) = World::new() else { return };
    world.configure(MARKED, EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    for _ in 0..2 {
        let former = world.tunnel();
        crash(former);
        let is_other = || {
            let pid = world.status()["tunnel_pid"].as_i64();
            pid.is_some_and(|pid| pid != i64::from(former.as_raw()))
                .then_some(())
        };
        assert!(eventually(DEADLINE, is_other).is_some());
        world.reaches_all_behind();
    }
    assert_eq!(world.wg(0)[3], "0x1234");
}
