//! Handshakes that cross, get lost, are replayed, or come too late.

use crate::common::*;
use convoy_proto::{
    config::{DeviceUpdate, PeerUpdate, PublicKey},
    counters::DropReason,
};

#[test]
fn initiations_that_cross_lead_to_a_tunnel_that_carries_both_ways() {
    let mut pair = both_know_each_other();
    pair.a_sends(b"from a");
    pair.b_sends(b"from b");
    pair.settle();
    pair.a_sends(b"from a again");
    pair.b_sends(b"from b again");
    pair.settle();
    assert_eq!(texts(&pair.a), ["from b", "from b again"]);
    assert_eq!(texts(&pair.b), ["from a", "from a again"]);
    assert!(pair.a.node.counters().handshakes <= 2);
}

#[test]
fn the_next_initiation_makes_up_for_a_lost_response() {
    let mut pair = Pair::new();
    pair.a_sends(b"held meanwhile");
    for datagram in pair.a.take_wire(pair.now) {
        let from = pair.a.address;
        pair.b.receive(&datagram, from, pair.now);
    }
    assert_eq!(pair.b.take_wire(pair.now).len(), 1, "the response, lost");
    pair.pass(6 * SECOND);
    assert_eq!(texts(&pair.b), ["held meanwhile"]);
}

#[test]
fn only_the_response_to_the_last_initiation_counts() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let first = pair.a.take_wire(pair.now);
    pair.now += 6 * SECOND;
    pair.a.tick(pair.now);
    let second = pair.a.take_wire(pair.now);
    assert_eq!((first.len(), second.len()), (1, 1));
    let (from_a, from_b) = (pair.a.address, pair.b.address);
    pair.b.receive(&first[0], from_a, pair.now);
    let late = pair.b.take_wire(pair.now);
    pair.a.receive(&late[0], from_b, pair.now);
    assert_eq!(pair.a.drops(DropReason::InboundUnknownSession), 1);
    pair.now += SECOND;
    pair.b.receive(&second[0], from_a, pair.now);
    pair.settle();
    assert_eq!(texts(&pair.b), ["x"]);
}

#[test]
fn a_side_that_has_just_answered_does_not_begin_a_handshake() {
    let mut pair = both_know_each_other();
    pair.a_sends(b"x");
    for datagram in pair.a.take_wire(pair.now) {
        let from = pair.a.address;
        pair.b.receive(&datagram, from, pair.now);
    }
    pair.b_sends(b"waits for the first packet in the new session");
    let sent = pair.b.take_wire(pair.now);
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [92]);
}

#[test]
fn a_packet_that_comes_just_after_an_answer_does_not_wait_for_ever() {
    let mut pair = both_know_each_other();
    a_begins_and_the_answer_gets_lost(&mut pair);
    pair.b_sends(b"waits");
    assert!(pair.b.take_wire(pair.now).is_empty());
    pair.now += 6 * SECOND;
    pair.b.tick(pair.now);
    let sent = pair.b.take_wire(pair.now);
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [148]);
    for _ in 0..130 {
        pair.now += SECOND;
        pair.b.tick(pair.now);
        pair.b.take_wire(pair.now);
    }
    assert_eq!(pair.b.drops(DropReason::OutboundHandshakeTimeout), 1);
}

#[test]
fn an_answer_does_not_end_attempts_of_ones_own() {
    let mut pair = both_know_each_other();
    pair.b_sends(b"waits");
    assert_eq!(pair.b.take_wire(pair.now).len(), 1, "an initiation, lost");
    pair.now += 4 * SECOND;
    a_begins_and_the_answer_gets_lost(&mut pair);
    let mut initiations = 0;
    for _ in 0..12 {
        pair.now += SECOND;
        pair.b.tick(pair.now);
        initiations += pair.b.take_wire(pair.now).len();
    }
    assert_eq!(initiations, 2);
}

#[test]
fn initiations_of_one_peer_are_accepted_at_most_every_twenty_milliseconds() {
    let mut pair = Pair::new();
    let from = pair.a.address;
    for (after, is_accepted) in [(0, true), (19, false), (21, true)] {
        let at = pair.now + SECOND * after / 1000;
        let mut again = Host::new(1);
        let mut peer = pair.b.as_peer();
        peer.endpoint = Some(pair.b.address);
        peer.persistent_keepalive = Some(1);
        again.set_peer(peer, at);
        pair.b.receive(&again.take_wire(at)[0], from, at);
        let answers = pair.b.take_wire(at).len();
        assert_eq!(answers, usize::from(is_accepted), "after {after} ms");
    }
    assert_eq!(pair.b.drops(DropReason::InboundTooSoon), 1);
}

#[test]
fn nine_unanswered_initiations_do_not_push_out_the_current_session() {
    let mut pair = Pair::connected();
    let from = pair.a.address;
    // The way back to `a` is cut: its initiations and its packets go on arriving.
    for n in 0..20u32 {
        pair.now += 5 * SECOND;
        let mut again = Host::new(1);
        let mut peer = pair.b.as_peer();
        peer.endpoint = Some(pair.b.address);
        peer.persistent_keepalive = Some(1);
        again.set_peer(peer, pair.now);
        for initiation in again.take_wire(pair.now) {
            pair.b.receive(&initiation, from, pair.now);
        }
        assert_eq!(pair.b.take_wire(pair.now).len(), 1, "an answer to {n}");
        pair.a_sends(b"in the session so far");
        for datagram in pair.a.take_wire(pair.now) {
            pair.b.receive(&datagram, from, pair.now);
        }
        assert_eq!(pair.b.delivered.len() as u32, n + 1);
    }
}

#[test]
fn a_peer_whose_public_key_anybody_could_impersonate_gets_no_keys() {
    let mut host = Host::new(1);
    let low_order = [[0; 32], {
        let mut one = [0; 32];
        one[0] = 1;
        one
    }];
    for key in low_order {
        let mut peer = PeerUpdate::new(PublicKey(key));
        peer.endpoint = Some(([192, 0, 2, 9], 9).into());
        peer.allowed_ips = vec![allow([10, 0, 0, 9].into(), 32)];
        peer.persistent_keepalive = Some(1);
        host.set_peer(peer, 10 * SECOND);
        assert_eq!(host.take_wire(10 * SECOND).len(), 0, "no initiation");
    }
    assert_eq!(
        host.snapshot(10 * SECOND).peers.len(),
        2,
        "they are peers nevertheless"
    );
}

#[test]
fn no_number_of_preshared_key_changes_lets_an_old_initiation_in_again() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    pair.b.take_wire(pair.now);
    for key in 0..20 {
        let mut peer = pair.a.as_peer();
        peer.preshared_key = preshared(key);
        pair.b.set_peer(peer, pair.now);
        pair.now += SECOND;
        pair.b.receive(&wire[0], from, pair.now);
        assert_eq!(pair.b.take_wire(pair.now).len(), 0, "after {key} changes");
    }
}

#[test]
fn nothing_is_sent_to_udp_port_zero() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let wire = pair.a.take_wire(pair.now);
    let mut from = pair.a.address;
    from.set_port(0);
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundPortZero), 1);
    assert_eq!(pair.b.take_wire(pair.now).len(), 0);
}

#[test]
fn a_new_packet_gives_a_handshake_all_its_attempts_again() {
    let mut pair = Pair::new();
    for _ in 0..60 {
        pair.a_sends(b"every seven seconds");
        pair.a.take_wire(pair.now);
        let end = pair.now + 7 * SECOND;
        while let Some(at) = pair.a.node.poll_timeout().filter(|at| *at <= end) {
            pair.now = at;
            pair.a.tick(at);
        }
        pair.now = end;
    }
    assert_eq!(pair.a.drops(DropReason::OutboundHandshakeTimeout), 0);
}

fn a_begins_and_the_answer_gets_lost(pair: &mut Pair) {
    pair.a_sends(b"begins a handshake");
    for datagram in pair.a.take_wire(pair.now) {
        let from = pair.a.address;
        pair.b.receive(&datagram, from, pair.now);
    }
    let lost = pair.b.take_wire(pair.now);
    assert_eq!(lost.iter().map(Vec::len).collect::<Vec<_>>(), [92]);
}

fn both_know_each_other() -> Pair {
    let mut pair = Pair::new();
    let mut to_a = pair.a.as_peer();
    to_a.endpoint = Some(pair.a.address);
    pair.b.update(
        DeviceUpdate {
            peers: vec![to_a],
            ..DeviceUpdate::default()
        },
        pair.now,
    );
    pair
}

fn texts(host: &Host) -> Vec<&str> {
    let text = |packet: &'_ Vec<u8>| std::str::from_utf8(&packet[20..]).map(|_| ());
    assert!(host.delivered.iter().all(|p| text(p).is_ok()));
    let texts = host
        .delivered
        .iter()
        .map(|p| std::str::from_utf8(payload(p)));
    texts.map(|text| text.expect("text")).collect()
}
