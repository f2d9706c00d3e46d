//! Peers that are met through a hub: nodes in memory, which need no root and no network.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod histories;
mod switches;
mod world;

use std::{net::SocketAddr, time::Duration};

use common::{SECOND, ipv4, preshared};
use convoy_proto::{
    config::{DeviceUpdate, DirectPath, PeerUpdate, PrivateKey, PublicKey, WhyNotDirect},
    counters::DropReason,
};
use convoy_types::CandidateKind;
use world::{A, B, C, HUB, World};

/// Least length of a datagram with data in the tests; messages about paths are at least 80 bytes long.
const DATA: &[u8] = b"data";

#[test]
fn two_peers_meet_through_the_hub_and_data_takes_the_direct_path() {
    let mut world = World::new(&[A, B]);
    world.send(A, B, b"first");
    assert!(world.direct.is_empty(), "the first packet goes by the hub");
    world.pass(SECOND);
    assert_eq!(world.delivered(B), [b"first"]);
    let path = world.status(A).path.unwrap();
    let DirectPath { remote, kind, .. } = path;
    assert_eq!(
        (remote, kind),
        (world.hosts[B].address, CandidateKind::Host)
    );
    assert_eq!(world.status(B).path.unwrap().remote, world.hosts[A].address);
    let (before, at_hub) = (world.direct.len(), packets_at_hub(&mut world));
    assert_eq!(world.talk(A, B, SECOND), 10);
    assert_eq!(world.talk(B, A, SECOND), 10);
    assert!(world.direct.len() >= before + 20);
    assert_eq!(packets_at_hub(&mut world), at_hub);
}

#[test]
fn a_peer_that_knows_nothing_of_direct_paths_is_reached_by_the_hub() {
    let mut world = World::new(&[A]);
    world.set_directs(A, &[B], None);
    assert_eq!(world.talk(A, B, 30 * SECOND), 300 + rendezvous(&mut world));
    assert_eq!(world.status(A).path, Err(WhyNotDirect::NoAnswer));
    assert_eq!(world.talk(B, A, SECOND), 10);
    assert!(world.direct.is_empty());
    let initiations = rendezvous(&mut world);
    assert!((1..=4).contains(&initiations), "{initiations}");
}

/// Returns how many messages for another end were delivered to `B`, which takes none out.
fn rendezvous(world: &mut World) -> usize {
    let is_udp = |packet: &&Vec<u8>| packet[9] == 17;
    world.hosts[B].delivered.iter().filter(is_udp).count()
}

#[test]
fn a_packet_in_the_midst_of_a_change_of_keys_leaves_no_key_of_the_former() {
    let mut world = World::new(&[A, B]);
    world.set_directs(A, &[], None);
    let others = (100..=255).map(|n| PeerUpdate::new(PublicKey([n; 32])));
    let update = DeviceUpdate {
        peers: others.collect(),
        ..DeviceUpdate::default()
    };
    world.hosts[A].update(update, world.now);
    world.set_directs(A, &[B], None);
    let former = world.hosts[A].public_key();
    world.hosts[A].key = PrivateKey([77; 32]);
    let update = DeviceUpdate {
        private_key: Some(Some(world.hosts[A].key.clone())),
        ..DeviceUpdate::default()
    };
    let mut plan = world.hosts[A].planner.plan(update);
    assert!(!world.hosts[A].node.apply_slice(&mut plan, world.now));
    world.send(A, B, b"in the midst");
    world.hosts[A].node.apply(plan, world.now);
    let update = DeviceUpdate {
        peers: vec![
            PeerUpdate {
                remove: true,
                ..PeerUpdate::new(former)
            },
            world.hosts[A].as_peer(),
        ],
        ..DeviceUpdate::default()
    };
    world.hosts[HUB].update(update, world.now);
    world.set_directs(B, &[A], None);
    // The first attempt has failed; it is not the last.
    world.talk(A, B, 120 * SECOND);
    world.status(A).path.unwrap();
}

#[test]
fn without_a_direct_path_all_goes_by_the_hub() {
    let mut world = World::new(&[A, B]);
    world.cut(A, B);
    assert_eq!(world.talk(A, B, 40 * SECOND), 400);
    assert_eq!(world.status(A).path, Err(WhyNotDirect::Unreachable));
    assert_eq!(world.status(A).packets_by_hub, 400);
}

#[test]
fn a_path_that_dies_gives_its_data_back_to_the_hub() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    world.status(A).path.unwrap();
    world.cut(A, B);
    world.talk(A, B, 40 * SECOND);
    world.status(A).path.unwrap_err();
    assert_eq!(world.talk(A, B, SECOND), 10);
    world.cut.clear();
    world.talk(A, B, 90 * SECOND);
    world.status(A).path.unwrap();
    assert_eq!(world.talk(A, B, SECOND), 10);
}

#[test]
fn packets_held_for_a_dead_path_go_by_the_hub() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    world.talk(B, A, SECOND);
    world.pass(30 * SECOND);
    world.cut(A, B);
    world.cut(A, HUB);
    // As long as a session lasts. Only A, which began it, renews it.
    let age = world.status(B).last_handshake.unwrap();
    world.pass(180 * SECOND - age);
    world.status(B).path.unwrap();
    let before = packets_at_hub(&mut world);
    for text in [b"1", b"2", b"3"] {
        world.send(B, A, text);
    }
    while world.status(B).path.is_ok() {
        assert_eq!(packets_at_hub(&mut world), before);
        world.pass(SECOND);
    }
    let calls = 1;
    assert_eq!(packets_at_hub(&mut world), before + 3 + calls);
}

#[test]
fn a_peer_that_lost_its_path_takes_the_other_from_it_at_once() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    world.talk(B, A, SECOND);
    // B gets the answer to its data, and then waits for nothing.
    world.pass(15 * SECOND);
    world.talk(A, B, SECOND);
    world.cut(A, B);
    while world.status(A).path.is_ok() {
        world.talk(A, B, SECOND);
    }
    world.pass(SECOND);
    world.status(B).path.unwrap_err();
    assert_eq!(world.talk(B, A, 10 * SECOND), 100);
}

#[test]
fn a_handshake_counts_only_from_the_address_of_its_peer() {
    let mut world = World::new(&[A, B, C]);
    world.forged_source = Some((1, 3));
    world.send(A, B, b"first");
    world.pass(SECOND);
    assert_eq!(world.status_of(A, B).path, Err(WhyNotDirect::Meeting));
    assert!(world.hosts[B].drops(DropReason::InboundUnknownPeer) > 0);
    world.forged_source = None;
    world.talk(A, B, 10 * SECOND);
    world.status_of(A, B).path.unwrap();
}

#[test]
fn an_ordinary_peer_with_the_same_prefix_has_it_alone() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let mut other = world.hosts[C].as_peer();
    other.endpoint = Some(world.hosts[C].address);
    other.allowed_ips = vec![common::allow(world.hosts[B].inner, 32)];
    let now = world.now;
    world.hosts[A].set_peer(other, now);
    world.delivered(B);
    world.direct.clear();
    world.talk(A, B, SECOND);
    assert!(world.delivered(B).is_empty());
    assert!(
        world
            .direct
            .iter()
            .all(|it| it.to == world.hosts[C].address)
    );
    // Nor does the peer send from it.
    let before = world.hosts[A].drops(DropReason::InboundForeignSource);
    assert_eq!(world.talk(B, A, SECOND), 0);
    assert_eq!(
        world.hosts[A].drops(DropReason::InboundForeignSource),
        before + 10
    );
}

#[test]
fn renewed_sessions_move_nothing_and_lose_nothing() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let path = world.status(A).path.unwrap().remote;
    let at_hub = packets_at_hub(&mut world);
    let sent = 4000;
    assert_eq!(world.talk(A, B, 400 * SECOND), sent);
    assert_eq!(world.status(A).path.unwrap().remote, path);
    assert_eq!(packets_at_hub(&mut world), at_hub);
    assert!(world.status(A).last_handshake.unwrap() < 130 * SECOND);
}

#[test]
fn an_idle_pair_gives_up_its_path_and_then_wakes_nobody() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    world.pass(400 * SECOND);
    assert_eq!(world.status(A).path, Err(WhyNotDirect::Idle));
    world.pass(600 * SECOND);
    let sent = world.direct.len();
    assert_eq!(world.hosts[A].node.poll_timeout(), None);
    world.pass(3600 * SECOND);
    assert_eq!(world.direct.len(), sent);
    assert_eq!(world.talk(A, B, SECOND), 10);
    world.status(A).path.unwrap();
}

#[test]
fn nobody_sends_as_another_and_nobody_receives_what_is_anothers() {
    let mut world = World::new(&[A, B, C]);
    world.talk(A, B, 2 * SECOND);
    world.talk(C, B, 2 * SECOND);
    world.delivered(B);
    let a = world.hosts[A].inner;
    let b = world.hosts[B].inner;
    let before = world.hosts[B].drops(DropReason::InboundForeignSource);
    // On its direct path to B, with the address of A.
    world.send_as(a, C, b, b"forged");
    world.pass(SECOND);
    assert!(world.delivered(B).is_empty());
    assert_eq!(
        world.hosts[B].drops(DropReason::InboundForeignSource),
        before + 1
    );
    // By the hub, which checks the source.
    let before = world.hosts[HUB].drops(DropReason::InboundForeignSource);
    let hub = world.hosts[HUB].inner;
    world.send_as(a, C, hub, b"forged");
    world.pass(SECOND);
    assert_eq!(
        world.hosts[HUB].drops(DropReason::InboundForeignSource),
        before + 1
    );
    // What A sends to B arrives at B alone.
    world.hosts[C].delivered.clear();
    assert_eq!(world.talk(A, B, SECOND), 10);
    assert!(world.hosts[C].delivered.is_empty());
}

#[test]
fn the_hub_forges_nothing_in_the_session_of_two_peers() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let path = world.status(B).path.unwrap().remote;
    let (a, b) = (world.hosts[A].inner, world.hosts[B].inner);
    for kind in 0..=255u8 {
        for length in [0, 5, 64, 92, 148, 200] {
            let mut udp = vec![202, 107, 202, 107, 0, 0, 0, 0, kind, 0, 0, 0];
            udp.resize(8 + length, kind);
            let mut packet = ipv4(a, b, &udp);
            packet[9] = 17;
            world.send_packet(HUB, &packet);
        }
    }
    world.pass(SECOND);
    assert!(world.delivered(B).iter().all(|it| it == DATA));
    assert_eq!(world.status(B).path.unwrap().remote, path);
    assert_eq!(world.talk(A, B, SECOND), 10);
}

#[test]
fn a_peer_does_not_move_by_data() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let path = world.status(B).path.unwrap().remote;
    world.delivered(B);
    world.send(A, B, b"elsewhere");
    let sent = world.flying.pop_back().unwrap();
    let elsewhere = SocketAddr::from(([203, 0, 113, 7], 9));
    world.arrive_from(elsewhere, B, &sent.bytes);
    assert_eq!(world.delivered(B), [b"elsewhere"]);
    assert_eq!(world.status(B).path.unwrap().remote, path);
    world.direct.clear();
    world.talk(B, A, SECOND);
    assert!(world.direct.iter().all(|it| it.to == path));
}

#[test]
fn different_preshared_keys_leave_the_two_at_the_hub() {
    let mut world = World::new(&[A, B]);
    world.set_directs(A, &[B], Some(1));
    world.set_directs(B, &[A], Some(2));
    assert_eq!(world.talk(A, B, 20 * SECOND), 200);
    world.status(A).path.unwrap_err();
    world.set_directs(B, &[A], Some(1));
    world.talk(A, B, 90 * SECOND);
    world.status(A).path.unwrap();
}

#[test]
fn without_the_hub_or_the_peer_nothing_is_left_and_they_come_back() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let hub = world.hosts[HUB].as_peer();
    let removal = PeerUpdate {
        remove: true,
        ..PeerUpdate::new(hub.public_key)
    };
    let now = world.now;
    world.hosts[A].set_peer(removal, now);
    assert_eq!(world.status(A).path, Err(WhyNotDirect::Idle));
    assert_eq!(world.talk(A, B, SECOND), 0);
    let back = PeerUpdate {
        endpoint: Some(world.hosts[HUB].address),
        allowed_ips: vec![common::allow([10, 0, 0, 0].into(), 24)],
        ..hub
    };
    let now = world.now;
    world.hosts[A].set_peer(back, now);
    world.talk(A, B, 3 * SECOND);
    world.status(A).path.unwrap();
    world.talk(B, A, SECOND);
    world.set_directs(A, &[], None);
    world.pass(SECOND);
    let sent = world.direct.len();
    for (from, to) in [(A, B), (B, A)] {
        assert_eq!(world.talk(from, to, SECOND), 10);
    }
    assert_eq!(world.direct.len(), sent, "both ends have left the path");
    assert!(
        world.hosts[A]
            .node
            .snapshot(world.now, std::time::SystemTime::now())
            .directs
            .is_empty()
    );
}

#[test]
fn a_followed_peers_path_is_reported() {
    let mut world = World::new(&[A, B]);
    let b = world.hosts[B].public_key();
    let _ = world.hosts[A].node.follow([b].into_iter().collect());
    world.talk(A, B, SECOND);
    let event = world.hosts[A].node.poll_handshake_event().unwrap();
    let remote = event.path.unwrap().unwrap().remote;
    assert_eq!((event.peer, remote), (b, world.hosts[B].address));
    world.cut(A, B);
    world.talk(A, B, 40 * SECOND);
    let event = world.hosts[A].node.poll_handshake_event().unwrap();
    assert!(event.path.unwrap().is_err());
}

#[test]
fn a_stun_server_is_asked_while_two_meet_and_only_its_answer_is_taken() {
    let mut world = World::new(&[A, B]);
    let server = SocketAddr::from(([198, 51, 100, 1], 3478));
    world.stun = Some(server);
    world.set_directs(A, &[B], None);
    world.pass(100 * SECOND);
    let asked = |world: &World| world.direct.iter().filter(|it| it.to == server).count();
    assert_eq!(asked(&world), 0, "nobody wants to know");
    world.cut(A, B);
    world.send(A, B, DATA);
    world.pass(Duration::from_millis(100));
    assert_eq!(asked(&world), 1);
    let request = world.direct.iter().find(|it| it.to == server).unwrap();
    let answer = stun_answer(&request.bytes, ([203, 0, 113, 7], 4000).into());
    let before = world.hosts[A].drops(DropReason::InboundNotWireGuard);
    world.arrive_from(([198, 51, 100, 2], 3478).into(), A, &answer);
    assert_eq!(
        world.hosts[A].drops(DropReason::InboundNotWireGuard),
        before + 1
    );
    world.direct.clear();
    world.arrive_from(server, A, &answer);
    assert_eq!(
        world.hosts[A].drops(DropReason::InboundNotWireGuard),
        before + 1
    );
    // B learns the address, and tries it.
    world.pass(SECOND);
    let tried = SocketAddr::from(([203, 0, 113, 7], 4000));
    assert!(world.direct.iter().any(|it| it.from == B && it.to == tried));
    world.pass(900 * SECOND);
    let count = asked(&world);
    world.pass(900 * SECOND);
    assert_eq!(asked(&world), count, "nobody wants to know any more");
}

/// The answer of a STUN server that sees this address.
fn stun_answer(request: &[u8], seen: SocketAddr) -> Vec<u8> {
    use stun_types::{
        attribute::XorMappedAddress,
        message::{Message, MessageWrite as _, MessageWriteExt as _, MessageWriteVec},
    };
    let request = Message::from_bytes(request).unwrap();
    let mut answer = Message::builder_success(&request, MessageWriteVec::new());
    let mapped = XorMappedAddress::new(seen, request.transaction_id());
    answer.add_attribute(&mapped).unwrap();
    answer.finish()
}

#[test]
fn a_link_that_was_down_meets_again() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let now = world.now;
    world.hosts[A].node.set_link(false, now);
    assert_eq!(world.status(A).path, Err(WhyNotDirect::Idle));
    world.pass(SECOND);
    let now = world.now;
    world.hosts[A].node.set_link(true, now);
    world.talk(A, B, 3 * SECOND);
    world.status(A).path.unwrap();
    world.delivered(B);
    assert_eq!(world.talk(A, B, SECOND), 10);
}

#[test]
fn a_changed_private_key_ends_the_sessions_and_the_right_one_brings_them_back() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let now = world.now;
    let key = |key| DeviceUpdate {
        private_key: Some(Some(key)),
        ..DeviceUpdate::default()
    };
    let own = world.hosts[A].key.clone();
    world.hosts[A].update(key(convoy_proto::config::PrivateKey([77; 32])), now);
    world.pass(SECOND);
    let now = world.now;
    world.hosts[A].update(key(own), now);
    world.talk(A, B, 60 * SECOND);
    world.status(A).path.unwrap();
    assert_eq!(world.talk(A, B, SECOND), 10);
}

#[test]
fn an_ordinary_peer_is_no_peer_of_the_hub() {
    let mut world = World::new(&[A, B]);
    world.talk(A, B, 2 * SECOND);
    let mut ordinary = world.hosts[B].as_peer();
    ordinary.endpoint = Some(world.hosts[B].address);
    ordinary.preshared_key = preshared(3);
    let now = world.now;
    world.hosts[A].set_peer(ordinary, now);
    let snapshot = world.hosts[A].snapshot(now);
    assert_eq!((snapshot.directs.len(), snapshot.peers.len()), (0, 2));
    world.set_directs(A, &[B], None);
    assert!(world.hosts[A].snapshot(now).directs.is_empty());
    assert_eq!(world.talk(A, B, Duration::from_millis(300)), 0);
}

/// Packets that the hub has forwarded.
fn packets_at_hub(world: &mut World) -> u64 {
    world.hosts[HUB].node.counters().inbound_packets
}
