//! Peers that are met through a hub, behind NATs that only a relay passes: nodes and a TURN server in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod families;
mod histories;
mod network;
mod server;
#[path = "../common/turn.rs"]
mod turn;
mod world;

use std::{net::SocketAddr, time::Duration};

use common::SECOND;
use convoy_proto::{
    config::{CandidateKind, DeviceUpdate, PeerUpdate, RelayState, WhyNotDirect},
    counters::DropReason,
};
use network::Nat;
use world::{A, B, C, HUB, World};

/// Two clients whose data goes by a relay.
fn relayed(with_relay: &[usize]) -> World {
    let mut world = World::new(&[A, B], with_relay);
    world.lost(A, B, 5 * SECOND);
    must_be_relayed(&mut world);
    world
}

fn must_be_relayed(world: &mut World) {
    for (one, other) in [(A, B), (B, A)] {
        let path = world.status(one, other).path;
        assert_eq!(path.map(|it| it.kind), Ok(CandidateKind::Relayed));
    }
}

fn packets_at_hub(world: &mut World) -> u64 {
    world.hosts[HUB].node.counters().inbound_packets
}

#[test]
fn two_hard_nats_meet_by_a_relay_that_only_one_has_and_nothing_is_lost() {
    for owner in [A, B] {
        let mut world = World::new(&[A, B], &[owner]);
        assert_eq!(world.lost(A, B, 5 * SECOND), 0);
        must_be_relayed(&mut world);
        let at_hub = packets_at_hub(&mut world);
        assert_eq!(world.lost(A, B, 5 * SECOND), 0);
        assert_eq!(packets_at_hub(&mut world), at_hub);
        let state = world.relay_state(owner);
        assert!(matches!(state, RelayState::Ready(_)), "{state:?}");
    }
}

#[test]
fn without_a_relay_they_stay_at_the_hub() {
    let mut world = World::new(&[A, B], &[]);
    assert_eq!(world.lost(A, B, 30 * SECOND), 0);
    assert_eq!(world.status(A, B).path, Err(WhyNotDirect::Unreachable));
}

#[test]
fn both_ends_with_a_relay_meet_and_nothing_is_lost() {
    let mut world = World::new(&[A, B], &[A, B]);
    assert_eq!(world.lost(A, B, 60 * SECOND), 0);
    must_be_relayed(&mut world);
}

#[test]
fn a_relay_that_dies_without_a_word_gives_its_data_back_to_the_hub() {
    for with_relay in [&[A][..], &[B], &[A, B]] {
        let mut world = relayed(with_relay);
        world.server.is_alive = false;
        world.lost(A, B, 40 * SECOND);
        for (one, other) in [(A, B), (B, A)] {
            world.status(one, other).path.unwrap_err();
        }
        assert_eq!(world.lost(A, B, 5 * SECOND), 0, "{with_relay:?}");
        world.server.is_alive = true;
        world.lost(A, B, 200 * SECOND);
        must_be_relayed(&mut world);
        assert_eq!(world.lost(A, B, 5 * SECOND), 0, "{with_relay:?}");
    }
}

#[test]
fn a_relay_that_dies_is_noticed_within_eleven_seconds_while_data_flows() {
    for with_relay in [&[A][..], &[B], &[A, B]] {
        let mut world = relayed(with_relay);
        world.server.is_alive = false;
        world.lost(A, B, 11 * SECOND);
        for (one, other) in [(A, B), (B, A)] {
            world.status(one, other).path.unwrap_err();
        }
        assert_eq!(world.lost(A, B, 5 * SECOND), 0, "{with_relay:?}");
    }
}

#[test]
fn a_relay_that_has_forgotten_all_is_asked_again() {
    let mut world = relayed(&[A]);
    world.server.restart();
    world.lost(A, B, 120 * SECOND);
    must_be_relayed(&mut world);
    assert_eq!(world.lost(A, B, 5 * SECOND), 0);
}

#[test]
fn a_configuration_without_the_relay_sends_data_by_the_hub_at_once() {
    let mut world = relayed(&[A]);
    let now = world.now;
    world.hosts[A].node.set_relays(&[], now);
    assert_eq!(world.status(A, B).path, Err(WhyNotDirect::RelayLost));
    world.collect(A);
    // B learns it from the new candidates, or from the request for a meeting.
    world.lost(A, B, SECOND);
    assert_eq!(world.lost(A, B, 30 * SECOND), 0);
    assert_eq!(world.status(B, A).path, Err(WhyNotDirect::Unreachable));
}

#[test]
fn a_direct_path_replaces_the_relayed_one_and_the_relay_is_given_back() {
    let mut world = relayed(&[A, B]);
    // Renewed sessions do not make it an ordinary peer's.
    assert_eq!(world.lost(A, B, 300 * SECOND), 0);
    for (one, other) in [(A, B), (B, A)] {
        world.set_nat(one, Nat::Home);
        world.set_directs(one, &[other]);
    }
    // Before the next handshake, which would say to an ordinary peer that the direct way works.
    let session = world.status(A, B).last_handshake.unwrap();
    world.lost(A, B, 45 * SECOND);
    let now = world.status(A, B).last_handshake.unwrap();
    assert!(now >= session + 45 * SECOND, "{session:?} {now:?}");
    for (one, other) in [(A, B), (B, A)] {
        let path = world.status(one, other).path.unwrap();
        assert_ne!(path.kind, CandidateKind::Relayed);
        assert_eq!(world.relay_state(one), RelayState::Idle);
    }
    let relayed = world.server.relayed.len();
    assert_eq!(world.lost(A, B, 5 * SECOND), 0);
    assert_eq!(world.server.relayed.len(), relayed);
}

#[test]
fn clients_that_meet_directly_ask_no_relay() {
    let mut world = World::new(&[A, B], &[A, B]);
    for (one, other) in [(A, B), (B, A)] {
        world.set_nat(one, Nat::Home);
        world.set_directs(one, &[other]);
    }
    world.lost(A, B, 60 * SECOND);
    assert!(world.status(A, B).path.unwrap().kind < CandidateKind::Relayed);
    let server = SocketAddr::from(server::ADDRESS);
    assert!(!world.sent[A].contains(&server) && !world.sent[B].contains(&server));
}

#[test]
fn an_idle_pair_gives_the_relay_back_and_then_wakes_nobody() {
    let mut world = relayed(&[A, B]);
    world.pass(400 * SECOND);
    for (one, other) in [(A, B), (B, A)] {
        assert_eq!(world.status(one, other).path, Err(WhyNotDirect::Idle));
        assert_eq!(world.relay_state(one), RelayState::Idle);
    }
    let asked = |world: &World| {
        let server = SocketAddr::from(server::ADDRESS);
        let sent = [A, B].map(|it| world.sent[it].iter().filter(|to| **to == server).count());
        sent[0] + sent[1]
    };
    let before = asked(&world);
    world.pass(3600 * SECOND);
    assert_eq!(asked(&world), before);
    assert_eq!(world.lost(A, B, 5 * SECOND), 0);
    must_be_relayed(&mut world);
}

#[test]
fn a_hub_that_is_removed_takes_the_relay_along() {
    let mut world = relayed(&[A]);
    let asked = |world: &World| {
        let server = SocketAddr::from(server::ADDRESS);
        world.sent[A].iter().filter(|to| **to == server).count()
    };
    let before = asked(&world);
    let removed = DeviceUpdate {
        peers: vec![PeerUpdate {
            remove: true,
            ..PeerUpdate::new(world.hosts[HUB].public_key())
        }],
        ..DeviceUpdate::default()
    };
    let now = world.now;
    world.hosts[A].update(removed, now);
    world.collect(A);
    assert_eq!(world.relay_state(A), RelayState::Idle);
    assert_eq!(asked(&world), before + 1, "the allocation is given back");
}

#[test]
fn two_hours_of_rekeys_lose_nothing_and_move_nothing() {
    for with_relay in [&[A][..], &[A, B]] {
        let mut world = relayed(with_relay);
        let paths =
            [(A, B), (B, A)].map(|(one, other)| world.status(one, other).path.unwrap().remote);
        let at_hub = packets_at_hub(&mut world);
        let lost = world.lost(A, B, 7200 * SECOND);
        assert_eq!(lost, 0, "{with_relay:?}");
        let after =
            [(A, B), (B, A)].map(|(one, other)| world.status(one, other).path.unwrap().remote);
        assert_eq!(after, paths);
        assert_eq!(packets_at_hub(&mut world), at_hub);
        assert!(world.status(A, B).last_handshake.unwrap() < 130 * SECOND);
    }
}

#[test]
fn a_liar_aims_neither_this_side_nor_its_relay_at_others() {
    let mut world = relayed(&[A]);
    let before = world.server.relayed.len();
    let victims = |n: u32| -> Vec<SocketAddr> {
        let victim = |k: u32| ([198, 18, (n >> 6) as u8, (n << 2) as u8 + k as u8], 53).into();
        (0..2).map(victim).collect()
    };
    const SECONDS: u32 = 600;
    for n in 0..SECONDS {
        world.named[B] = victims(n);
        world.set_directs(B, &[A]);
        world.lost(A, B, SECOND);
    }
    let is_victim = |to: &&SocketAddr| to.ip().to_string().starts_with("198.18.");
    let relayed = world.server.relayed[before..].iter().filter(is_victim);
    // Twelve probes to each of six channels, and to one more each five seconds.
    let most = 12 * (6 + SECONDS as usize / 5);
    let relayed = relayed.count();
    assert!((1..=most).contains(&relayed), "{relayed} of {most}");
    let direct = world.sent[A].iter().filter(is_victim).count();
    let most = 150 + SECONDS as usize + 60;
    assert!((20..=most).contains(&direct), "{direct} of {most}");
    // Nobody else has ever been sent to.
    let hub = world.hosts[HUB].address;
    let [host, outer] = [[192, 168, 2, 2], [203, 0, 113, 2]].map(std::net::IpAddr::from);
    let is_known =
        |to: &SocketAddr| *to == hub || world.server.is_at(*to) || [host, outer].contains(&to.ip());
    let mut sent = world.sent[A].iter();
    assert_eq!(sent.find(|to| !is_known(to) && !is_victim(to)), None);
}

#[test]
fn a_relay_cannot_make_this_side_answer_strangers() {
    let mut world = relayed(&[A]);
    let server = SocketAddr::from(server::ADDRESS);
    let stranger = SocketAddr::from(([198, 18, 0, 1], 53));
    world.sent[A].clear();
    let before = world.hosts[A].drops(DropReason::InboundRelayStranger);
    // Handshakes and garbage do not even cost a decryption.
    for kind in [0, 1, 2, 3, 5, 255] {
        for length in [0, 4, 32, 64, 92, 148] {
            let mut message = vec![kind, 0, 0, 0];
            message.resize(length, kind);
            let indication = server::indication(stranger, &message);
            world.arrive_from(server, A, &indication);
        }
    }
    let after = world.hosts[A].drops(DropReason::InboundRelayStranger);
    assert_eq!(after - before, 36);
    let before = world.hosts[A].drops(DropReason::InboundUnknownSession);
    let mut message = vec![4, 0, 0, 0];
    message.resize(96, 7);
    world.arrive_from(server, A, &server::indication(stranger, &message));
    let after = world.hosts[A].drops(DropReason::InboundUnknownSession);
    assert_eq!(after - before, 1);
    world.pass(10 * SECOND);
    assert!(!world.sent[A].contains(&stranger));
    assert!(!world.server.relayed.contains(&stranger));
}

#[test]
fn without_direct_peers_that_need_it_indications_are_dropped() {
    let mut world = World::new(&[], &[A]);
    let server = SocketAddr::from(server::ADDRESS);
    let mut message = vec![4, 0, 0, 0];
    message.resize(96, 7);
    let indication = server::indication(([203, 0, 113, 2], 9).into(), &message);
    let before = world.hosts[A].drops(DropReason::InboundRelayStranger);
    world.arrive_from(server, A, &indication);
    let after = world.hosts[A].drops(DropReason::InboundRelayStranger);
    assert_eq!(after - before, 1);
}

#[test]
fn a_link_that_was_down_meets_by_the_relay_again() {
    let mut world = relayed(&[A]);
    let now = world.now;
    world.hosts[A].node.set_link(false, now);
    assert_eq!(world.status(A, B).path, Err(WhyNotDirect::Idle));
    world.pass(SECOND);
    let now = world.now;
    world.hosts[A].node.set_link(true, now);
    world.lost(A, B, 60 * SECOND);
    must_be_relayed(&mut world);
    assert_eq!(world.lost(A, B, 5 * SECOND), 0);
}

#[test]
fn another_network_brings_another_address_of_the_relay_at_once() {
    let mut world = relayed(&[A]);
    world.set_nat(A, Nat::Hard);
    world.hosts[A].address = ([192, 168, 77, 2], 51820).into();
    world.set_directs(A, &[B]);
    // The hub learns where A is now.
    world.send(A, HUB, b"hello");
    world.lost(A, B, 5 * SECOND);
    must_be_relayed(&mut world);
    assert_eq!(world.lost(A, B, 5 * SECOND), 0);
}

#[test]
fn three_clients_share_the_relay_of_one() {
    let mut world = World::new(&[A, B, C], &[A]);
    for _ in 0..100 {
        world.send(A, B, b"data");
        world.send(A, C, b"data");
        world.pass(Duration::from_millis(100));
    }
    for (one, other) in [(A, B), (B, A), (A, C), (C, A)] {
        let path = world.status(one, other).path;
        assert_eq!(path.map(|it| it.kind), Ok(CandidateKind::Relayed));
    }
    assert_eq!(world.lost(A, C, 5 * SECOND), 0);
    assert_eq!(world.lost(A, B, 5 * SECOND), 0);
}
