//! Handshakes, session ages and configuration changes, with time under control.

use std::time::Duration;

use crate::common::*;
use convoy_proto::{Node, Planner, config::DeviceUpdate, counters::DropReason};

#[test]
fn an_idle_pair_falls_silent_and_needs_no_wake_up_until_keys_are_erased() {
    let mut pair = Pair::connected();
    pair.pass(30 * SECOND);
    let idle = pair.now;
    for host in [&mut pair.a, &mut pair.b] {
        host.tick(idle);
        assert!(
            host.node
                .poll_timeout()
                .is_none_or(|at| at > idle + 400 * SECOND)
        );
    }
    let sent = pair.a.snapshot(idle).peers[0].tx_bytes;
    pair.pass(100 * SECOND);
    assert_eq!(pair.a.snapshot(pair.now).peers[0].tx_bytes, sent);
}

#[test]
fn the_initiator_begins_a_new_handshake_after_two_minutes_of_use() {
    let mut pair = Pair::connected();
    pair.pass(119 * SECOND);
    pair.a_sends(b"still the first session");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 1);
    pair.pass(SECOND);
    pair.a_sends(b"time for the second");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 2);
    assert_eq!(pair.b.delivered.len(), 2);
}

#[test]
fn the_responder_does_not_renew_on_sending() {
    let mut pair = Pair::connected();
    pair.pass(121 * SECOND);
    pair.b_sends(b"from the responder");
    let wire = pair.b.take_wire(pair.now);
    assert_eq!(wire.len(), 1, "the packet without an initiation");
}

#[test]
fn the_initiator_renews_on_receiving_in_the_last_minute() {
    let mut pair = Pair::connected();
    pair.pass(164 * SECOND);
    pair.b_sends(b"early");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 1);
    pair.pass(SECOND);
    pair.b_sends(b"late");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 2);
}

#[test]
fn an_expired_session_neither_sends_nor_receives() {
    let mut pair = Pair::connected();
    pair.a_sends(b"on the way for too long");
    let late = pair.a.take_wire(pair.now);
    pair.now += 180 * SECOND;
    let from = pair.a.address;
    pair.b.receive(&late[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundExpiredSession), 1);
    pair.a_sends(b"needs a new session");
    let wire = pair.a.take_wire(pair.now);
    assert_eq!(wire.len(), 1);
    assert_eq!(wire[0].len(), 148, "an initiation, not data");
}

#[test]
fn an_unreachable_peer_costs_its_held_packets_after_ninety_seconds() {
    let mut pair = Pair::new();
    pair.a_sends(b"into the void");
    let mut initiations = 0;
    while let Some(at) = pair.a.node.poll_timeout() {
        initiations += pair.a.take_wire(pair.now).len();
        pair.now = at;
        pair.a.tick(at);
        if pair.a.drops(DropReason::OutboundHandshakeTimeout) > 0 {
            break;
        }
    }
    assert_eq!(initiations, 20);
    assert_eq!(pair.a.drops(DropReason::OutboundHandshakeTimeout), 1);
    pair.a_sends(b"try again");
    pair.settle();
    assert_eq!(
        pair.b.delivered.len(),
        1,
        "a new packet begins a new handshake"
    );
}

#[test]
fn persistent_keepalives_begin_at_once_and_go_on_for_ever() {
    let mut pair = Pair::new();
    let mut peer = pair.b.as_peer();
    peer.persistent_keepalive = Some(25);
    pair.a.set_peer(peer, pair.now);
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 1);
    let mut seen = pair.b.snapshot(pair.now).peers[0].rx_bytes;
    for _ in 0..40 {
        pair.pass(30 * SECOND);
        let now = pair.b.snapshot(pair.now).peers[0].rx_bytes;
        assert!(now > seen, "silent at {:?}", pair.now);
        seen = now;
    }
    assert!(
        pair.a.node.counters().handshakes >= 8,
        "the session was renewed throughout"
    );
}

#[test]
fn persistent_keepalives_begin_once_the_endpoint_is_set_after_the_interval() {
    let mut pair = Pair::new();
    let mut update = pair.a.as_peer();
    update.persistent_keepalive = Some(25);
    pair.b.set_peer(update.clone(), pair.now);
    pair.now += SECOND;
    update.endpoint = Some(pair.a.address);
    pair.b.set_peer(update, pair.now);
    pair.pass(60 * SECOND);
    assert!(pair.b.snapshot(pair.now).peers[0].tx_bytes > 0);
}

#[test]
fn initiations_of_thousands_of_peers_are_spread_over_several_calls() {
    let mut host = Host::new(1);
    let peers = (0..500u16)
        .map(|n| {
            let mut key = [1; 32];
            key[..2].copy_from_slice(&n.to_le_bytes());
            let mut peer =
                convoy_proto::config::PeerUpdate::new(convoy_proto::config::PublicKey(key));
            peer.endpoint = Some(([192, 0, 2, 9], n).into());
            peer.persistent_keepalive = Some(25);
            peer
        })
        .collect();
    let update = DeviceUpdate {
        peers,
        ..DeviceUpdate::default()
    };
    host.update(update, 10 * SECOND);
    let mut sent = 0;
    loop {
        let is_more_due = host.node.handle_timeout(10 * SECOND);
        let now = host.take_wire(10 * SECOND).len();
        assert!(now <= 4, "{now} in one call");
        sent += now;
        if !is_more_due {
            break;
        }
    }
    assert_eq!(sent, 500);
}

#[test]
fn a_preshared_key_on_one_side_only_allows_no_session() {
    let mut pair = Pair::new();
    let mut peer = pair.a.as_peer();
    peer.preshared_key = preshared(3);
    pair.b.set_peer(peer, pair.now);
    pair.a_sends(b"?");
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 0);
    assert_eq!(pair.a.drops(DropReason::InboundBadHandshake), 1);

    let mut peer = pair.b.as_peer();
    peer.preshared_key = preshared(3);
    pair.a.set_peer(peer, pair.now);
    pair.pass(6 * SECOND);
    pair.a_sends(b"!");
    pair.settle();
    assert_eq!(payload(&pair.b.delivered[0]), b"?", "held meanwhile");
}

#[test]
fn a_changed_preshared_key_keeps_the_session_and_is_used_by_the_next_handshake() {
    let mut pair = Pair::connected();
    let with = |mut peer: convoy_proto::config::PeerUpdate| {
        peer.preshared_key = preshared(5);
        peer
    };
    let (to_a, to_b) = (with(pair.a.as_peer()), with(pair.b.as_peer()));
    pair.a.set_peer(to_b, pair.now);
    pair.a_sends(b"in the session so far");
    pair.settle();
    pair.b.set_peer(to_a, pair.now);
    pair.a_sends(b"and still");
    pair.b_sends(b"both ways");
    pair.settle();
    assert_eq!((pair.a.delivered.len(), pair.b.delivered.len()), (1, 2));
    assert_eq!(pair.a.node.counters().handshakes, 1);

    pair.pass(121 * SECOND);
    pair.a_sends(b"old enough for a new handshake");
    pair.settle();
    pair.a_sends(b"in the new session");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 2);
    assert_eq!(pair.b.delivered.len(), 4);
}

#[test]
fn a_step_of_the_wall_clock_neither_ends_the_session_nor_lets_replays_in() {
    let mut pair = Pair::new();
    pair.a_sends(b"hello");
    let initiation = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive(&initiation[0], from, pair.now);
    pair.settle();
    for host in [&mut pair.a, &mut pair.b] {
        host.node.set_wall_clock(Duration::from_secs(1_700_000_000));
    }
    pair.a_sends(b"in the session so far");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 1);
    pair.now += SECOND;
    pair.b.receive(&initiation[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundBadHandshake), 1);
    pair.pass(121 * SECOND);
    pair.a_sends(b"time for the next");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 2);
    assert_eq!(pair.b.delivered.len(), 3);
}

#[test]
fn the_session_under_a_replaced_preshared_key_ends_soon_after_the_next_handshake() {
    let mut pair = Pair::connected();
    let (mut to_a, mut to_b) = (pair.a.as_peer(), pair.b.as_peer());
    for peer in [&mut to_a, &mut to_b] {
        peer.preshared_key = preshared(5);
    }
    pair.a_sends(b"in the session so far, late");
    let late = pair.a.take_wire(pair.now).remove(0);
    pair.a.set_peer(to_b, pair.now);
    pair.b.set_peer(to_a, pair.now);
    pair.pass(121 * SECOND);
    pair.a_sends(b"old enough for a new handshake");
    pair.settle();
    assert_eq!(pair.b.node.counters().handshakes, 2);
    let from = pair.a.address;
    pair.pass(5 * SECOND);
    pair.b.receive(&late, from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundUnknownSession), 1);
}

#[test]
fn a_handshake_that_never_completes_does_not_shorten_the_session() {
    for initiator_sends in [true, false] {
        let mut pair = Pair::connected();
        for second in 1..180 {
            pair.now += SECOND;
            for host in [&mut pair.a, &mut pair.b] {
                host.tick(pair.now);
            }
            match initiator_sends {
                true => pair.a_sends(b"on and on"),
                false => pair.b_sends(b"on and on"),
            }
            let (from_a, from_b) = (pair.a.address, pair.b.address);
            let is_data = |datagram: &Vec<u8>| datagram[0] == 4;
            for datagram in pair.a.take_wire(pair.now).iter().filter(|d| is_data(d)) {
                pair.b.receive(datagram, from_a, pair.now);
            }
            for datagram in pair.b.take_wire(pair.now).iter().filter(|d| is_data(d)) {
                pair.a.receive(datagram, from_b, pair.now);
            }
            let arrived = pair.a.delivered.len() + pair.b.delivered.len();
            assert_eq!(arrived, second, "after {second} s");
        }
    }
}

#[test]
fn no_session_index_is_used_twice() {
    let mut pair = Pair::connected();
    let mut indices = std::collections::HashSet::new();
    let mut handshakes = 0;
    for _ in 0..30 {
        pair.pass(121 * SECOND);
        pair.a_sends(b"time for the next session");
        loop {
            let sent = [pair.a.take_wire(pair.now), pair.b.take_wire(pair.now)].map(|sent| {
                let begins = |d: &&Vec<u8>| matches!(d[0], 1 | 2);
                let senders = sent.iter().filter(begins).map(|d| d[4..8].to_vec());
                handshakes += senders.clone().count();
                indices.extend(senders);
                sent
            });
            if sent.iter().all(Vec::is_empty) {
                break;
            }
            let (from_a, from_b) = (pair.a.address, pair.b.address);
            sent[0]
                .iter()
                .for_each(|d| pair.b.receive(d, from_a, pair.now));
            sent[1]
                .iter()
                .for_each(|d| pair.a.receive(d, from_b, pair.now));
        }
    }
    assert_eq!((handshakes, indices.len()), (60, 60));
    for byte in 0..4 {
        let values: std::collections::HashSet<_> = indices.iter().map(|i| i[byte]).collect();
        assert!(values.len() > 30, "byte {byte} identifies the node");
    }
}

#[test]
fn the_same_randomness_at_the_same_time_makes_the_same_initiation() {
    let initiations = [0, 0, 1].map(|seed| {
        let mut pair = Pair::new();
        pair.a.node = Node::with_randomness(move |bytes| {
            bytes.fill(seed);
            true
        });
        pair.a.planner = Planner::default();
        let update = DeviceUpdate {
            private_key: Some(Some(pair.a.key.clone())),
            ..DeviceUpdate::default()
        };
        pair.a.update(update, pair.now);
        let mut peer = pair.b.as_peer();
        peer.endpoint = Some(pair.b.address);
        pair.a.set_peer(peer, pair.now);
        pair.a_sends(b"x");
        let wire = pair.a.take_wire(pair.now);
        wire.into_iter().next().expect("an initiation")
    });
    assert_eq!(initiations[0], initiations[1]);
    assert_ne!(initiations[0], initiations[2]);
}

#[test]
fn a_wall_clock_that_is_set_back_does_not_make_initiations_look_like_replays() {
    let mut pair = Pair::new();
    pair.a
        .node
        .set_wall_clock(Duration::from_secs(1_700_000_000));
    pair.a_sends(b"x");
    pair.settle();
    pair.a
        .node
        .set_wall_clock(Duration::from_secs(1_600_000_000));
    pair.pass(121 * SECOND);
    pair.a_sends(b"in the next session");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 2);
}

#[test]
fn a_machine_that_boots_in_the_past_is_heard_once_its_clock_is_set() {
    let mut pair = Pair::new();
    let year = Duration::from_secs(365 * 86_400);
    pair.a.node.set_wall_clock(50 * year);
    pair.a_sends(b"x");
    pair.settle();
    // It reboots without a battery-backed clock.
    pair.a = Host::new(1);
    let mut peer = pair.b.as_peer();
    peer.endpoint = Some(pair.b.address);
    pair.a.set_peer(peer, pair.now);
    pair.a_sends(b"held meanwhile");
    pair.pass(6 * SECOND);
    assert_eq!(pair.a.node.counters().handshakes, 0);
    assert!(pair.b.drops(DropReason::InboundBadHandshake) > 0);
    pair.a.node.set_wall_clock(50 * year);
    pair.pass(6 * SECOND);
    assert_eq!(pair.a.node.counters().handshakes, 1);
}

#[test]
fn an_initiation_from_before_a_changed_preshared_key_cannot_be_replayed() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    for key in 1..4 {
        let mut peer = pair.a.as_peer();
        peer.preshared_key = preshared(key);
        pair.b.set_peer(peer, pair.now);
        let answered = pair.b.take_wire(pair.now).len();
        pair.now += SECOND;
        pair.b.receive(&wire[0], from, pair.now);
        assert_eq!(pair.b.drops(DropReason::InboundBadHandshake), key.into());
        assert_eq!(pair.b.take_wire(pair.now).len(), 0, "after {answered}");
    }
    let mut peer = pair.b.as_peer();
    peer.preshared_key = preshared(3);
    pair.a.set_peer(peer, pair.now);
    // Not even after the next session, which the other side begins.
    let mut peer = pair.a.as_peer();
    peer.endpoint = Some(pair.a.address);
    pair.b.set_peer(peer, pair.now);
    pair.b_sends(b"in the next session");
    pair.settle();
    assert_eq!(payload(&pair.a.delivered[0]), b"in the next session");
    pair.now += SECOND;
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundBadHandshake), 4);
    pair.a_sends(b"which goes on");
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 2);
}

#[test]
fn doomed_initiations_after_a_changed_preshared_key_do_not_end_the_former_session() {
    let mut pair = Pair::connected();
    let mut peer = pair.b.as_peer();
    peer.preshared_key = preshared(5);
    pair.a.set_peer(peer, pair.now);
    let from = pair.b.address;
    for _ in 0..20 {
        pair.now += 5 * SECOND;
        // The other side's attempts, doomed by its former preshared key.
        let mut stale = Host::new(2);
        let mut to_a = pair.a.as_peer();
        to_a.endpoint = Some(pair.a.address);
        to_a.persistent_keepalive = Some(1);
        stale.set_peer(to_a, pair.now);
        for initiation in stale.take_wire(pair.now) {
            pair.a.receive(&initiation, from, pair.now);
        }
        pair.a.take_wire(pair.now);
    }
    pair.a_sends(b"in the session so far");
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 1);
}

/// The peer sends in the former session until it hears of the new one.
#[test]
fn data_under_way_is_received_in_the_session_of_a_former_preshared_key_for_five_seconds() {
    let mut pair = Pair::connected();
    pair.now += 10 * SECOND;
    let (mut to_a, mut to_b) = (pair.a.as_peer(), pair.b.as_peer());
    (to_a.preshared_key, to_b.preshared_key) = (preshared(5), preshared(5));
    pair.b.set_peer(to_a, pair.now);
    pair.a.set_peer(to_b, pair.now);
    let under_way = [b"in time", b"too old"].map(|data| {
        pair.b_sends(data);
        pair.b.take_wire(pair.now).remove(0)
    });
    let (peer, from) = (pair.b.public_key(), pair.b.address);
    pair.a.node.handshake_now(&peer, pair.now);
    pair.a.tick(pair.now);
    pair.settle();
    pair.now += 4 * SECOND;
    pair.a.tick(pair.now);
    pair.a.receive(&under_way[0], from, pair.now);
    assert_eq!(payload(&pair.a.delivered[0]), b"in time");
    pair.now += SECOND;
    pair.a.tick(pair.now);
    pair.a.receive(&under_way[1], from, pair.now);
    assert_eq!(pair.a.delivered.len(), 1);
    pair.b_sends(b"in the new session");
    pair.settle();
    assert_eq!(payload(&pair.a.delivered[1]), b"in the new session");
}

#[test]
fn a_handshake_from_a_stranger_or_with_a_wrong_mac_is_dropped() {
    let mut pair = Pair::new();
    let stranger = pair.a.public_key();
    let mut gone = pair.a.as_peer();
    gone.remove = true;
    pair.b.set_peer(gone, pair.now);
    assert_ne!(stranger, pair.b.public_key());
    pair.a_sends(b"knock");
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundUnknownPeer), 1);
    let mut wrong = wire[0].clone();
    wrong[120] ^= 1;
    pair.b.receive(&wrong, from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundBadMac), 1);
}

#[test]
fn a_replayed_initiation_is_dropped() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.take_wire(pair.now).len(), 1);
    pair.now += SECOND;
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.take_wire(pair.now).len(), 0);
    assert_eq!(pair.b.drops(DropReason::InboundBadHandshake), 1);
}

#[test]
fn a_flood_of_initiations_gets_a_limited_number_of_cookies() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let wire = pair.a.take_wire(pair.now);
    let mut with_a_wrong_cookie = wire[0].clone();
    with_a_wrong_cookie[147] = 1;
    let mut cookies = 0;
    for n in 0..50_000u32 {
        let from = (std::net::Ipv4Addr::from(n << 8), 7).into();
        pair.b.receive(&wire[0], from, pair.now);
        pair.b.receive(&with_a_wrong_cookie, from, pair.now);
        if n % 100 == 0 {
            let answers = pair.b.take_wire(pair.now);
            cookies += answers.iter().filter(|d| d.len() == 64).count();
        }
    }
    assert_eq!(cookies, 8192, "the burst of the token bucket");
    assert_eq!(pair.b.node.counters().cookies_sent, 8192);
    // It refills in an eighth of a second.
    pair.now += SECOND / 8;
    pair.b.receive(&wire[0], pair.a.address, pair.now);
    assert_eq!(pair.b.take_wire(pair.now).len(), 1);
}

#[test]
fn a_removed_peer_takes_its_held_packets_and_prefixes_along() {
    let mut pair = Pair::new();
    pair.a_sends(b"held");
    let mut peer = pair.b.as_peer();
    peer.remove = true;
    pair.a.set_peer(peer, pair.now);
    assert_eq!(pair.a.drops(DropReason::OutboundPeerRemoved), 1);
    pair.a_sends(b"there is no route left");
    assert_eq!(pair.a.drops(DropReason::OutboundNoRoute), 1);
    assert!(pair.a.snapshot(pair.now).peers.is_empty());
    pair.pass(600 * SECOND);
}

#[test]
fn unreachable_peers_do_not_cost_another_its_held_packets() {
    let mut pair = Pair::new();
    for host in (10..50).map(Host::new) {
        let mut peer = host.as_peer();
        peer.endpoint = Some(host.address);
        pair.a.set_peer(peer, pair.now);
        let packet = ipv4(pair.a.inner, host.inner, &[0; 1_392]);
        for _ in 0..128 {
            pair.a.send(&packet, pair.now);
        }
    }
    let overflow = pair.a.drops(DropReason::OutboundHeldOverflow);
    assert!(overflow > 1_000, "{overflow}");
    pair.a_sends(&[7; 1_392]);
    pair.settle();
    assert_eq!(payload(&pair.b.delivered[0]), [7; 1_392]);
}

#[test]
fn the_answers_to_our_own_initiations_are_no_load() {
    let now = 1_000 * SECOND;
    let mut hub = Host::new(1);
    hub.node.set_link(false, now);
    let mut peers: Vec<_> = (2..=255).map(Host::new).collect();
    for peer in &mut peers {
        let mut known = peer.as_peer();
        (known.endpoint, known.persistent_keepalive) = (Some(peer.address), Some(25));
        hub.set_peer(known, now);
        peer.set_peer(hub.as_peer(), now);
    }
    hub.node.set_link(true, now);
    hub.tick(now);
    let initiations = hub.take_wire(now);
    assert_eq!(initiations.len(), peers.len());
    for peer in &mut peers {
        for initiation in &initiations {
            peer.receive(initiation, hub.address, now);
        }
        for response in peer.take_wire(now) {
            hub.receive(&response, peer.address, now);
        }
    }
    let counters = hub.node.counters();
    assert_eq!((counters.handshakes, counters.cookies_sent), (254, 0));
}

#[test]
fn replacing_all_peers_and_adding_one_again_works() {
    let mut pair = Pair::connected();
    let mut peer = pair.b.as_peer();
    peer.endpoint = Some(pair.b.address);
    let update = DeviceUpdate {
        replace_peers: true,
        peers: vec![peer],
        ..DeviceUpdate::default()
    };
    pair.a.update(update, pair.now);
    pair.pass(6 * SECOND);
    pair.a_sends(b"fresh");
    pair.settle();
    assert_eq!(payload(&pair.b.delivered[0]), b"fresh");
}

#[test]
fn a_new_private_key_ends_the_sessions_and_the_devices_own_key_is_no_peer() {
    let mut pair = Pair::connected();
    let new = Host::new(9);
    pair.a.key = new.key.clone();
    let update = DeviceUpdate {
        private_key: Some(Some(new.key.clone())),
        peers: vec![new.as_peer()],
        ..DeviceUpdate::default()
    };
    pair.a.update(update, pair.now);
    assert_eq!(
        pair.a.snapshot(pair.now).peers.len(),
        1,
        "the device is not its own peer"
    );
    let renamed = pair.a.as_peer();
    pair.b.set_peer(renamed, pair.now);
    pair.pass(6 * SECOND);
    pair.a_sends(b"under a new name");
    pair.settle();
    assert_eq!(payload(&pair.b.delivered[0]), b"under a new name");
}

#[test]
fn update_only_ignores_unknown_peers_and_a_prefix_moves_to_its_new_peer() {
    let mut pair = Pair::new();
    let mut unknown = Host::new(50).as_peer();
    unknown.update_only = true;
    pair.a.set_peer(unknown, pair.now);
    assert_eq!(pair.a.snapshot(pair.now).peers.len(), 1);

    let mut thief = Host::new(51).as_peer();
    thief.allowed_ips = vec![allow(pair.b.inner, 32)];
    pair.a.set_peer(thief, pair.now);
    let peers = pair.a.snapshot(pair.now).peers;
    assert!(peers[0].allowed_ips.is_empty());
    assert_eq!(peers[1].allowed_ips.len(), 1);
}

#[test]
fn both_sides_show_the_time_of_the_last_handshake() {
    let mut pair = Pair::connected();
    pair.pass(7 * SECOND);
    for host in [&mut pair.a, &mut pair.b] {
        let at = host.snapshot(pair.now).peers[0].last_handshake.unwrap();
        let age = at.elapsed().unwrap();
        assert!((Duration::from_secs(7)..Duration::from_secs(9)).contains(&age));
        // Even if the wall clock is set meanwhile.
        let later = std::time::SystemTime::now() + Duration::from_secs(86_400);
        let again = host.node.snapshot(pair.now + SECOND, later);
        assert_eq!(again.peers[0].last_handshake, Some(at));
    }
}

#[test]
fn a_link_that_goes_down_ends_the_sessions_and_falls_silent() {
    let mut pair = Pair::connected();
    let mut peer = pair.b.as_peer();
    peer.persistent_keepalive = Some(25);
    pair.a.set_peer(peer, pair.now);
    pair.settle();
    pair.a_sends(b"on its way");
    let on_its_way = pair.a.take_wire(pair.now);
    pair.a.node.set_link(false, pair.now);
    pair.b_sends(b"too late");
    for datagram in pair.b.take_wire(pair.now) {
        let from = pair.b.address;
        pair.a.receive(&datagram, from, pair.now);
    }
    pair.a_sends(b"not at all");
    assert_eq!(pair.a.drops(DropReason::InboundLinkDown), 1);
    assert_eq!(pair.a.drops(DropReason::OutboundLinkDown), 1);
    pair.pass(300 * SECOND);
    assert_eq!(pair.a.take_wire(pair.now).len(), 0);
    assert_eq!(on_its_way.len(), 1);
}

#[test]
fn control_datagrams_that_wait_when_the_link_is_set_down_are_counted() {
    let mut pair = Pair::new();
    pair.a_sends(b"held, and an initiation");
    pair.a.node.set_link(false, pair.now);
    assert_eq!(pair.a.drops(DropReason::OutboundLinkDown), 2);
    assert_eq!(pair.a.take_wire(pair.now).len(), 0);
}

#[test]
fn a_keepalive_between_the_slices_of_a_link_that_goes_down_is_dropped_and_counted() {
    let mut pair = Pair::connected();
    let mut peer = pair.b.as_peer();
    peer.persistent_keepalive = Some(25);
    pair.a.set_peer(peer, pair.now);
    pair.settle();
    let mut change = pair.a.node.begin_link(false);
    pair.now += 30 * SECOND;
    pair.a.tick(pair.now);
    assert_eq!(pair.a.take_wire(pair.now).len(), 0);
    assert_eq!(pair.a.drops(DropReason::OutboundLinkDown), 1);
    assert!(pair.a.node.link_slice(&mut change, pair.now));
}

#[test]
fn a_link_that_comes_up_again_begins_a_new_session_and_resumes_keepalives() {
    let mut pair = Pair::connected();
    pair.a.node.set_link(false, pair.now);
    pair.now += SECOND;
    pair.a.node.set_link(true, pair.now);
    pair.a_sends(b"in a new session");
    pair.settle();
    assert_eq!(pair.a.node.counters().handshakes, 2);
    assert_eq!(payload(&pair.b.delivered[0]), b"in a new session");

    let mut peer = pair.b.as_peer();
    peer.persistent_keepalive = Some(25);
    pair.a.node.set_link(false, pair.now);
    pair.a.set_peer(peer, pair.now);
    assert_eq!(
        pair.a.take_wire(pair.now).len(),
        0,
        "nothing is sent while the link is down"
    );
    pair.now += 6 * SECOND;
    pair.a.node.set_link(true, pair.now);
    pair.a.tick(pair.now);
    assert_eq!(pair.a.take_wire(pair.now).len(), 1, "an initiation");
}

#[test]
fn an_initiation_from_before_the_link_went_down_cannot_be_replayed() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    pair.b.node.set_link(false, pair.now);
    pair.now += SECOND;
    pair.b.node.set_link(true, pair.now);
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundBadHandshake), 1);
}
