//! Relays with addresses of IPv4, of IPv6, and of both.

use std::net::{IpAddr, SocketAddr};

use convoy_proto::{
    config::{CandidateKind, RelayState, WhyNotDirect},
    counters::DropReason,
};

use crate::{
    common::SECOND,
    must_be_relayed,
    network::{Stack, v6_of},
    server::{self, BOTH, Has, ONLY_V4, ONLY_V6},
    world::{A, B, C, HUB, World},
};

/// Two clients whose network is of IPv6 alone.
fn of_ipv6_alone(has: Has, with_relay: &[usize]) -> World {
    World::of([Stack::V6; 3], has, &[A, B], with_relay)
}

/// Two clients with both families.
fn of_both(has: Has, with_relay: &[usize]) -> World {
    World::of([Stack::Both; 3], has, &[A, B], with_relay)
}

fn given(world: &mut World, owner: usize) -> Vec<SocketAddr> {
    match world.relay_state(owner) {
        RelayState::Ready(addresses) => addresses,
        other => panic!("{other:?}"),
    }
}

/// Requires that the path leads to an address of IPv6, or else of IPv4.
fn must_lead_over(world: &mut World, is_ipv6: bool) {
    must_be_relayed(world);
    for (one, other) in [(A, B), (B, A)] {
        let path = world.status(one, other).path.unwrap();
        assert_eq!(path.remote.is_ipv6(), is_ipv6, "{path:?}");
    }
}

#[test]
fn two_clients_of_ipv6_alone_meet_by_a_relayed_address_of_ipv6() {
    for with_relay in [&[A][..], &[B], &[A, B]] {
        for has in [BOTH, ONLY_V6] {
            let mut world = of_ipv6_alone(has, with_relay);
            assert_eq!(world.lost(A, B, 5 * SECOND), 0);
            must_lead_over(&mut world, true);
            let given = given(&mut world, with_relay[0]);
            assert_eq!(given.len(), 1, "no more is asked for than is needed");
            assert_eq!(world.lost(A, B, 600 * SECOND), 0);
            must_lead_over(&mut world, true);
        }
    }
}

#[test]
fn of_both_families_a_relay_carries_data_over_ipv6_if_it_can() {
    for with_relay in [&[A][..], &[A, B]] {
        for (has, is_ipv6) in [(BOTH, true), (ONLY_V6, true), (ONLY_V4, false)] {
            let mut world = of_both(has, with_relay);
            assert_eq!(world.lost(A, B, 5 * SECOND), 0, "{has:?}");
            must_lead_over(&mut world, is_ipv6);
            let given = given(&mut world, A);
            let expected = usize::from(has.v4) + usize::from(has.v6);
            assert_eq!(given.len(), expected, "{given:?}");
            assert_eq!(world.lost(A, B, 60 * SECOND), 0, "{has:?}");
        }
    }
}

#[test]
fn a_client_of_one_family_and_one_of_both_meet_over_what_the_relay_reaches() {
    for (stack, owner, is_ipv6) in [
        // The server's address of IPv6 serves a client that reaches the server over IPv4.
        (Stack::V4, A, true),
        (Stack::V4, B, false),
        (Stack::V6, A, true),
        (Stack::V6, B, true),
    ] {
        let stacks = [stack, Stack::Both, Stack::Both];
        let mut world = World::of(stacks, BOTH, &[A, B], &[owner]);
        assert_eq!(world.lost(A, B, 5 * SECOND), 0);
        must_lead_over(&mut world, is_ipv6);
    }
}

#[test]
fn a_server_of_ipv4_alone_leaves_clients_of_ipv6_alone_at_the_hub_and_rests_later() {
    let mut world = of_ipv6_alone(ONLY_V4, &[A, B]);
    assert_eq!(world.lost(A, B, 60 * SECOND), 0);
    for (one, other) in [(A, B), (B, A)] {
        let path = world.status(one, other).path;
        assert_eq!(path, Err(WhyNotDirect::Unreachable));
    }
    world.pass(400 * SECOND);
    rests(&mut world);
}

#[test]
fn a_server_without_the_needed_family_gives_way_to_the_next() {
    // The first server refuses all that is asked for, or has given IPv4 for another peer.
    for with_third in [false, true] {
        let stacks = [Stack::Both, Stack::V6, Stack::V4];
        let mut world = World::of(stacks, ONLY_V4, &[A, B, C], &[]);
        world.second.has = ONLY_V6;
        world.give_both_relays(A);
        if with_third {
            world.lost(A, C, 5 * SECOND);
        }
        assert_eq!(world.lost(A, B, 5 * SECOND), 0);
        must_lead_over(&mut world, true);
        assert!(world.second.relayed.contains(&v6_of(B)));
        if with_third {
            // It is asked once more, for both families.
            world.lost(A, C, 5 * SECOND);
            let path = world.status(A, C).path.unwrap();
            assert_eq!(path.kind, CandidateKind::Relayed);
            assert!(path.remote.is_ipv4());
            assert_eq!(world.lost(A, C, 5 * SECOND), 0);
        }
    }
}

#[test]
fn a_server_that_serves_every_peer_is_the_only_one_that_is_asked() {
    let mut world = of_both(ONLY_V4, &[]);
    world.give_both_relays(A);
    assert_eq!(world.lost(A, B, 60 * SECOND), 0);
    must_lead_over(&mut world, false);
    assert!(!world.sent[A].contains(&world.second.address));
}

#[test]
fn a_family_that_is_lost_gives_its_data_to_the_other() {
    for (has, is_ipv6) in [(ONLY_V4, false), (ONLY_V6, true)] {
        let mut world = of_both(BOTH, &[A]);
        world.lost(A, B, 5 * SECOND);
        must_lead_over(&mut world, true);
        world.server.has = has;
        world.server.restart();
        world.lost(A, B, 120 * SECOND);
        must_lead_over(&mut world, is_ipv6);
        assert_eq!(world.lost(A, B, 5 * SECOND), 0);
    }
}

#[test]
fn a_pair_of_ipv6_alone_that_idles_gives_the_relay_back_and_then_wakes_nobody() {
    let mut world = of_ipv6_alone(BOTH, &[A, B]);
    world.lost(A, B, 5 * SECOND);
    must_lead_over(&mut world, true);
    world.pass(400 * SECOND);
    for (one, other) in [(A, B), (B, A)] {
        assert_eq!(world.status(one, other).path, Err(WhyNotDirect::Idle));
        assert_eq!(world.relay_state(one), RelayState::Idle);
    }
    rests(&mut world);
}

/// Requires that the server is not asked for an hour.
fn rests(world: &mut World) {
    let server = world.server.address;
    let asked = |world: &World| world.sent[A].iter().filter(|it| **it == server).count();
    let before = asked(world);
    world.pass(3600 * SECOND);
    assert_eq!(asked(world), before);
    assert_eq!(world.relay_state(A), RelayState::Idle);
}

#[test]
fn a_liar_aims_neither_this_side_nor_its_relay_at_what_no_peer_may_name() {
    let lies = [
        "[::]:53",
        "[::1]:53",
        "[ff02::1]:53",
        "[fe80::1]:53",
        "[fec0::1]:53",
        "[fd00:ec2::254]:80",
        "[fd20:ce::254]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "[2001:db8::a9fe:a9fe]:80",
        "[2002:7f00:1::1]:53",
        "[::ffff:127.0.0.1]:53",
        "[::ffff:198.18.0.1]:53",
        "[::ffff:169.254.169.254]:80",
        // Of the tunnel, and of its hub.
        "[fd00:8::1]:53",
        "[fd00:8::abcd]:53",
        "[2001:db8:5::5]:0",
    ];
    let mut world = of_both(BOTH, &[A]);
    world.lost(A, B, 5 * SECOND);
    must_lead_over(&mut world, true);
    for some in lies.chunks(2) {
        let some = some.iter().map(|it| it.parse().unwrap());
        world.named[B] = some.collect();
        world.set_directs(B, &[A]);
        world.lost(A, B, 10 * SECOND);
    }
    let hub = world.hosts[HUB].address;
    let honest: [IpAddr; 3] = [
        [192, 168, 2, 2].into(),
        [203, 0, 113, 2].into(),
        v6_of(B).ip(),
    ];
    let sent = world.sent[A].iter().chain(&world.server.relayed);
    let own = [[203, 0, 113, 1].into(), v6_of(A).ip()];
    for to in sent {
        let is_known = *to == hub || world.server.is_at(*to);
        let is_end = honest.contains(&to.ip()) || own.contains(&to.ip());
        assert!(is_known || is_end, "{to}");
    }
}

#[test]
fn a_liar_aims_the_relay_at_few_strangers_over_ipv6_as_over_ipv4() {
    let mut world = of_both(BOTH, &[A]);
    world.lost(A, B, 5 * SECOND);
    let before = world.server.relayed.len();
    const SECONDS: u16 = 300;
    for n in 0..SECONDS {
        let victim = |k: u16| ([0x2001, 0xdb8, 0xbad, n, 0, 0, 0, k], 53).into();
        world.named[B] = (0..2).map(victim).collect();
        world.set_directs(B, &[A]);
        world.lost(A, B, SECOND);
    }
    let is_victim = |to: &&SocketAddr| to.to_string().starts_with("[2001:db8:bad:");
    let relayed = world.server.relayed[before..].iter().filter(is_victim);
    // Twelve probes to each of six channels, and to one more each five seconds.
    let most = 12 * (6 + usize::from(SECONDS) / 5);
    let relayed = relayed.count();
    assert!((1..=most).contains(&relayed), "{relayed} of {most}");
}

#[test]
fn a_relay_cannot_make_this_side_answer_strangers_over_ipv6() {
    let mut world = of_ipv6_alone(BOTH, &[A]);
    world.lost(A, B, 5 * SECOND);
    must_lead_over(&mut world, true);
    let server = world.server.address;
    for stranger in ["[2001:db8:bad::1]:53", "[::ffff:198.18.0.1]:53", "[::1]:53"] {
        let stranger = stranger.parse().unwrap();
        world.sent[A].clear();
        let mut message = vec![1, 0, 0, 0];
        message.resize(148, 7);
        let before = world.hosts[A].drops(DropReason::InboundRelayStranger);
        world.arrive_from(server, A, &server::indication(stranger, &message));
        let after = world.hosts[A].drops(DropReason::InboundRelayStranger);
        assert_eq!(after - before, 1);
        message[0] = 4;
        let before = world.hosts[A].drops(DropReason::InboundUnknownSession);
        world.arrive_from(server, A, &server::indication(stranger, &message));
        let after = world.hosts[A].drops(DropReason::InboundUnknownSession);
        assert_eq!(after - before, 1);
        world.pass(10 * SECOND);
        assert!(!world.sent[A].contains(&stranger));
        assert!(!world.server.relayed.contains(&stranger));
    }
}
