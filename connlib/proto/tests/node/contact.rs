//! Contact with a peer, as its handshakes show it.

use std::time::{Duration, SystemTime};

use crate::common::*;
use convoy_proto::config::{Handshakes, PeerUpdate};

#[test]
fn the_round_trip_is_the_time_from_an_initiation_to_its_response() {
    let mut pair = Pair::new();
    pair.a_sends(b"begins a handshake");
    pass_on(&mut pair, 7 * MILLISECOND);
    assert_eq!(of_a(&mut pair).round_trip, None, "there is no response yet");
    pair.now += 5 * MILLISECOND;
    pair.settle();
    assert_eq!(of_a(&mut pair).round_trip, Some(12 * MILLISECOND));
    let of_b = pair.b.snapshot(pair.now).peers[0].handshakes;
    assert_eq!(of_b.round_trip, None, "it has only answered");
}

#[test]
fn a_peer_is_connected_while_it_has_a_session() {
    let mut pair = Pair::connected();
    let first = of_a(&mut pair).connected_since.unwrap();
    let sees = |pair: &mut Pair| {
        let wall = first + Duration::from_secs(1_000);
        let peers = pair.a.node.snapshot(pair.now, wall).peers;
        peers[0].handshakes.connected_since
    };
    for _ in 0..3 {
        pair.pass(125 * SECOND);
        pair.a_sends(b"renews the session");
        pair.settle();
        assert_eq!(sees(&mut pair), Some(first));
    }
    pair.pass(181 * SECOND);
    assert_eq!(sees(&mut pair), None, "the session has expired");
    pair.a_sends(b"begins another one");
    pair.settle();
    assert_ne!(sees(&mut pair), Some(first));
    assert!(sees(&mut pair).is_some());
    pair.a.node.set_link(false, pair.now);
    assert_eq!(sees(&mut pair), None);
}

#[test]
fn initiations_without_an_answer_count_until_there_is_one() {
    let mut pair = Pair::new();
    pair.a_sends(b"into the void");
    let at_once = of_a(&mut pair);
    assert_eq!((at_once.unanswered, at_once.is_awaiting), (0, true));
    for expected in 1..=3 {
        pair.a.take_wire(pair.now);
        pair.now += 6 * SECOND;
        assert_eq!(of_a(&mut pair).unanswered, expected);
        pair.a.tick(pair.now);
        assert_eq!(of_a(&mut pair).unanswered, expected);
    }
    pair.settle();
    let connected = of_a(&mut pair);
    assert_eq!((connected.unanswered, connected.is_awaiting), (0, false));
}

#[test]
fn another_endpoint_has_no_failures_yet() {
    let mut pair = Pair::new();
    pair.a_sends(b"into the void");
    pair.a.take_wire(pair.now);
    pair.now += 6 * SECOND;
    pair.a.tick(pair.now);
    assert_eq!(of_a(&mut pair).unanswered, 1);
    let update = PeerUpdate {
        endpoint: Some(([192, 0, 2, 5], 51820).into()),
        ..pair.b.as_peer()
    };
    pair.a.set_peer(update, pair.now);
    assert_eq!(of_a(&mut pair).unanswered, 0);
}

#[test]
fn a_peer_with_another_preshared_key_answers_but_not_authentically() {
    let mut pair = Pair::new();
    let update = PeerUpdate {
        preshared_key: preshared(5),
        ..pair.b.as_peer()
    };
    pair.a.set_peer(update, pair.now);
    pair.a_sends(b"begins a handshake");
    pair.settle();
    let seen = of_a(&mut pair);
    assert_eq!((seen.unauthentic, seen.connected_since), (1, None));
    let update = PeerUpdate {
        preshared_key: Some(None),
        ..pair.b.as_peer()
    };
    pair.a.set_peer(update, pair.now);
    assert_eq!(of_a(&mut pair).unauthentic, 0);
    pair.now += 6 * SECOND;
    pair.a.tick(pair.now);
    pair.settle();
    assert!(of_a(&mut pair).connected_since.is_some());
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// Passes what A has sent to B, which takes `time`.
fn pass_on(pair: &mut Pair, time: Duration) {
    let from = pair.a.address;
    let wire = pair.a.take_wire(pair.now);
    pair.now += time;
    for datagram in wire {
        pair.b.receive(&datagram, from, pair.now);
    }
}

fn of_a(pair: &mut Pair) -> Handshakes {
    let snapshot = pair.a.node.snapshot(pair.now, SystemTime::now());
    snapshot.peers[0].handshakes
}
