//! Handshakes of followed peers are reported, and begin at once if asked for.

use std::net::{IpAddr, SocketAddr};

use crate::common::*;
use convoy_proto::{
    Followed, Outcome, PeerEvent,
    config::{DeviceUpdate, PeerUpdate, PublicKey},
    counters::DropReason,
};

#[test]
fn each_initiation_without_an_answer_is_reported_and_so_is_giving_up() {
    let mut pair = Pair::new();
    follow_each_other(&mut pair);
    pair.a_sends(b"into the void");
    let mut reported = Vec::new();
    let mut initiations = 0;
    while pair.a.drops(DropReason::OutboundHandshakeTimeout) == 0 {
        initiations += pair.a.take_wire(pair.now).len();
        assert_eq!(events(&mut pair.a), []);
        pair.now = pair.a.node.poll_timeout().expect("a retransmission is due");
        pair.a.tick(pair.now);
        reported.extend(events(&mut pair.a));
    }
    assert_eq!((initiations, reported.len()), (20, 20));
    let peer = pair.b.public_key();
    let given_up = reported.pop();
    assert_eq!(given_up, Some(PeerEvent::handshake(peer, Outcome::GivenUp)));
    let unanswered = PeerEvent::handshake(peer, Outcome::Unanswered);
    assert!(reported.iter().all(|event| *event == unanswered));
    pair.pass(200 * SECOND);
    assert_eq!(events(&mut pair.a), [], "nothing more is sent");
}

/// Each packet that comes more than 5 s after the last initiation begins a new handshake.
#[test]
fn it_is_also_reported_while_packets_keep_coming() {
    let mut pair = Pair::new();
    follow_each_other(&mut pair);
    let mut reported = 0;
    for _ in 0..60 {
        pair.a_sends(b"into the void");
        pair.a.tick(pair.now);
        pair.a.take_wire(pair.now);
        reported += events(&mut pair.a).len();
        pair.now += SECOND;
    }
    assert_eq!(reported, 11);
}

/// Data of the peer is then no sign that it can be reached: neither its calls nor its packets in the old session.
#[test]
fn a_peer_that_no_longer_hears_this_side_is_reported_as_soon_as_a_silent_one() {
    for (peer_sends, to_be_silent) in [(0, true), (1, false), (60, false)] {
        let mut pair = Pair::connected();
        follow_each_other(&mut pair);
        events(&mut pair.a);
        let mut reported = Vec::new();
        for second in 0..60 {
            if second < peer_sends {
                pair.b_sends(b"heard");
            }
            pair.a_sends(b"not heard");
            for _ in 0..10 {
                pair.a.take_wire(pair.now);
                let arriving = pair.b.take_wire(pair.now);
                let from = pair.b.address;
                for datagram in arriving.iter().filter(|_| !to_be_silent) {
                    pair.a.receive(datagram, from, pair.now);
                }
                pair.now += SECOND / 10;
                pair.a.tick(pair.now);
                pair.b.tick(pair.now);
            }
            let events = events(&mut pair.a);
            assert!(events.iter().all(|event| !event.is_answered()));
            reported.extend(events.iter().map(|_| second));
        }
        eprintln!("{peer_sends} packets of the peer: unanswered after {reported:?} s");
        assert!(reported[2] <= 32, "{reported:?}");
        // Its calls and those of this side count.
        assert!(reported.len() <= 20, "{reported:?}");
    }
}

#[test]
fn a_completed_handshake_is_reported_on_both_sides() {
    let mut pair = Pair::new();
    follow_each_other(&mut pair);
    for handshakes in 1..=2 {
        pair.a_sends(b"hello");
        pair.settle();
        assert_eq!(pair.a.node.counters().handshakes, handshakes);
        let (a, b) = (pair.a.public_key(), pair.b.public_key());
        assert_eq!(events(&mut pair.a), [answered(b)]);
        assert_eq!(events(&mut pair.b), [answered(a)]);
        pair.pass(121 * SECOND);
        assert_eq!(events(&mut pair.a), []);
    }
}

#[test]
fn only_the_latest_event_of_a_peer_waits() {
    let mut pair = Pair::new();
    follow_each_other(&mut pair);
    pair.a_sends(b"lost");
    for _ in 0..3 {
        pair.a.take_wire(pair.now);
        pair.now += 6 * SECOND;
        pair.a.tick(pair.now);
    }
    assert!(pair.a.node.has_handshake_events());
    pair.settle();
    let peer = pair.b.public_key();
    assert_eq!(events(&mut pair.a), [answered(peer)]);
    assert!(!pair.a.node.has_handshake_events());
}

#[test]
fn peers_that_are_not_followed_or_no_longer_cause_no_event() {
    let mut pair = Pair::new();
    let other = PublicKey([9; 32]);
    drop(pair.a.node.follow([other].into_iter().collect()));
    pair.a_sends(b"hello");
    pair.settle();
    assert_eq!(events(&mut pair.a), []);

    follow_each_other(&mut pair);
    pair.pass(121 * SECOND);
    pair.a_sends(b"hello");
    pair.settle();
    assert!(pair.a.node.has_handshake_events());
    drop(pair.a.node.follow(Followed::default()));
    assert_eq!(events(&mut pair.a), []);
}

#[test]
fn a_peer_may_be_followed_before_it_exists() {
    let mut pair = Pair::new();
    let peer = pair.b.public_key();
    let to_b = PeerUpdate {
        endpoint: Some(pair.b.address),
        ..pair.b.as_peer()
    };
    replace_peers(&mut pair, Vec::new());
    drop(pair.a.node.follow([peer].into_iter().collect()));
    replace_peers(&mut pair, vec![to_b]);
    pair.a_sends(b"hello");
    pair.settle();
    assert_eq!(events(&mut pair.a), [answered(peer)]);
}

/// This side has answered the peer's initiation and waits for its first message: it has sent none of its own.
#[test]
fn a_handshake_that_was_put_off_does_not_count_as_unanswered() {
    let mut pair = Pair::new();
    let to_a = PeerUpdate {
        endpoint: Some(pair.a.address),
        ..pair.a.as_peer()
    };
    pair.b.set_peer(to_a, pair.now);
    follow_each_other(&mut pair);
    pair.a_sends(b"x");
    let from = pair.a.address;
    for datagram in pair.a.take_wire(pair.now) {
        pair.b.receive(&datagram, from, pair.now);
    }
    pair.b.take_wire(pair.now);
    pair.b_sends(b"waits");
    pair.now += 6 * SECOND;
    pair.b.tick(pair.now);
    assert_eq!(pair.b.take_wire(pair.now).len(), 1, "an initiation");
    assert_eq!(events(&mut pair.b), []);
    pair.now += 6 * SECOND;
    pair.b.tick(pair.now);
    assert_eq!(events(&mut pair.b).len(), 1);
}

#[test]
fn a_handshake_begins_at_once_even_after_one_that_has_just_been_completed() {
    let mut pair = Pair::connected();
    follow_each_other(&mut pair);
    let peer = pair.b.public_key();
    for _ in 0..3 {
        pair.now += SECOND / 10;
        shake_hands(&mut pair);
        pair.settle();
        assert_eq!(events(&mut pair.a), [answered(peer)]);
    }
    assert_eq!(pair.a.node.counters().handshakes, 4);
}

#[test]
fn handshakes_that_are_asked_for_at_once_do_not_come_too_soon_for_the_peer() {
    let mut pair = Pair::connected();
    follow_each_other(&mut pair);
    pair.now += SECOND;
    let from = pair.a.address;
    shake_hands(&mut pair);
    for datagram in pair.a.take_wire(pair.now) {
        pair.b.receive(&datagram, from, pair.now);
    }
    // The answer is lost, and meanwhile the endpoint changes, too.
    pair.b.take_wire(pair.now);
    for n in [5, 6] {
        pair.now += SECOND / 1000;
        let update = PeerUpdate {
            endpoint: Some(([192, 0, 2, n], 51820).into()),
            ..pair.b.as_peer()
        };
        pair.a.update(one_peer(update), pair.now);
        shake_hands(&mut pair);
        assert_eq!(pair.a.take_wire(pair.now).len(), 0);
    }
    pair.pass(SECOND / 10);
    assert_eq!(pair.b.drops(DropReason::InboundTooSoon), 0);
    let peer = pair.b.public_key();
    assert_eq!(events(&mut pair.a), [answered(peer)]);
}

#[test]
fn an_initiation_from_before_the_machine_slept_does_not_count_as_unanswered() {
    let mut pair = Pair::new();
    follow_each_other(&mut pair);
    pair.a_sends(b"x");
    pair.a.take_wire(pair.now);
    pair.now += 3600 * SECOND;
    shake_hands(&mut pair);
    assert_eq!(events(&mut pair.a), []);
    pair.settle();
    let peer = pair.b.public_key();
    assert_eq!(events(&mut pair.a), [answered(peer)]);
}

#[test]
fn a_handshake_that_was_asked_for_leaves_from_any_source_and_replaces_the_one_in_progress() {
    let mut pair = Pair::connected();
    follow_each_other(&mut pair);
    pair.pass(121 * SECOND);
    pair.a_sends(b"begins a handshake from the source so far");
    assert_eq!(source_of_initiation(&mut pair), Some(pair.a.address.ip()));
    pair.now += SECOND;
    shake_hands(&mut pair);
    assert_eq!(source_of_initiation(&mut pair), None);
    assert_eq!(events(&mut pair.a), [], "the former one is not unanswered");
    pair.now += 6 * SECOND;
    pair.a.tick(pair.now);
    assert_eq!(events(&mut pair.a).len(), 1);
}

#[test]
fn a_handshake_that_was_asked_for_has_all_its_attempts() {
    let mut pair = Pair::new();
    pair.a_sends(b"held");
    pair.now += 60 * SECOND;
    shake_hands(&mut pair);
    let mut initiations = 0;
    while pair.a.drops(DropReason::OutboundHandshakeTimeout) == 0 {
        initiations += pair.a.take_wire(pair.now).len();
        pair.now = pair.a.node.poll_timeout().expect("a retransmission is due");
        pair.a.tick(pair.now);
    }
    // The first had been queued before.
    assert_eq!(initiations, 21);
}

#[test]
fn no_handshake_begins_where_none_is_possible() {
    let mut pair = Pair::new();
    let (a, unknown) = (pair.a.public_key(), PublicKey([9; 32]));
    pair.a.node.handshake_now(&unknown, pair.now);
    // Without an endpoint.
    pair.b.node.handshake_now(&a, pair.now);
    pair.a.node.set_link(false, pair.now);
    shake_hands(&mut pair);
    for host in [&mut pair.a, &mut pair.b] {
        assert_eq!(host.node.poll_timeout(), None);
        assert_eq!(host.take_wire(pair.now).len(), 0);
    }
}

#[test]
fn a_handshake_in_progress_moves_to_a_new_endpoint_at_once_and_is_still_given_up() {
    let mut pair = Pair::new();
    pair.a_sends(b"held");
    let addresses = [5, 6].map(|n| SocketAddr::from(([192, 0, 2, n], 51820)));
    let mut sent = Vec::new();
    for round in 0.. {
        let to = addresses[round % 2];
        let update = PeerUpdate {
            endpoint: Some(to),
            ..pair.b.as_peer()
        };
        pair.now += SECOND;
        // Without another tick: it does not wait for a timer.
        pair.a.update(one_peer(update), pair.now);
        let control = pair.a.node.poll_control(true);
        let control = match round {
            0 => control.and(pair.a.node.poll_control(true)),
            _ => control,
        };
        assert_eq!(control.expect("an initiation").destination.to, to);
        sent.push(to);
        pair.now += 6 * SECOND;
        pair.a.tick(pair.now);
        sent.extend(pair.a.node.poll_control(true).map(|c| c.destination.to));
        if pair.a.drops(DropReason::OutboundHandshakeTimeout) > 0 {
            break;
        }
    }
    // The one to the first address was not counted.
    assert!((18..=20).contains(&sent.len()), "{}", sent.len());
}

#[test]
fn an_endpoint_that_changes_during_a_handshake_gets_an_initiation_soon_even_if_no_packet_waits() {
    let a_millisecond = SECOND / 1000;
    for (is_packet_held, after) in [
        (true, a_millisecond),
        (false, a_millisecond),
        (false, SECOND),
    ] {
        let mut pair = Pair::new();
        match is_packet_held {
            true => pair.a_sends(b"held"),
            false => shake_hands(&mut pair),
        }
        assert_eq!(pair.a.take_wire(pair.now).len(), 1);
        pair.now += after;
        let to = SocketAddr::from(([192, 0, 2, 5], 51820));
        let update = PeerUpdate {
            endpoint: Some(to),
            ..pair.b.as_peer()
        };
        pair.a.update(one_peer(update), pair.now);
        pair.now += SECOND / 10;
        pair.a.tick(pair.now);
        let control = pair.a.node.poll_control(true).expect("an initiation");
        assert_eq!(control.destination.to, to);
        assert!(pair.a.node.poll_control(true).is_none());
    }
}

#[test]
fn the_same_endpoint_again_begins_no_handshake() {
    let mut pair = Pair::new();
    pair.a_sends(b"held");
    pair.a.take_wire(pair.now);
    let update = PeerUpdate {
        endpoint: Some(pair.b.address),
        ..pair.b.as_peer()
    };
    pair.a.update(one_peer(update), pair.now);
    assert_eq!(pair.a.take_wire(pair.now).len(), 0);
}

#[test]
fn a_peer_that_roams_or_gets_another_endpoint_has_moved() {
    let mut pair = Pair::connected();
    follow_each_other(&mut pair);
    pair.a_sends(b"from where it was");
    pair.settle();
    assert_eq!(moves(&mut pair.b), []);
    let elsewhere = SocketAddr::from(([192, 0, 2, 9], 4_500));
    pair.a_sends(b"from elsewhere");
    for datagram in pair.a.take_wire(pair.now) {
        pair.b.receive(&datagram, elsewhere, pair.now);
    }
    assert_eq!(moves(&mut pair.b), [elsewhere]);
    for (to, expected) in [(elsewhere, &[elsewhere][..]), (elsewhere, &[])] {
        let update = PeerUpdate {
            endpoint: Some(to),
            ..pair.b.as_peer()
        };
        pair.a.update(one_peer(update), pair.now);
        assert_eq!(moves(&mut pair.a), expected);
    }
}

fn follow_each_other(pair: &mut Pair) {
    let (a, b) = (pair.a.public_key(), pair.b.public_key());
    drop(pair.a.node.follow([b].into_iter().collect()));
    drop(pair.b.node.follow([a].into_iter().collect()));
}

fn shake_hands(pair: &mut Pair) {
    pair.a.node.handshake_now(&pair.b.public_key(), pair.now);
    pair.a.tick(pair.now);
}

/// The events of handshakes.
fn events(host: &mut Host) -> Vec<PeerEvent> {
    let events = std::iter::from_fn(|| host.node.poll_handshake_event());
    let handshakes = events.filter_map(|event| Some((event.peer, event.handshake?)));
    handshakes
        .map(|(peer, outcome)| PeerEvent::handshake(peer, outcome))
        .collect()
}

fn moves(host: &mut Host) -> Vec<SocketAddr> {
    let events = std::iter::from_fn(|| host.node.poll_handshake_event());
    events.filter_map(|event| event.moved_to).collect()
}

fn answered(peer: PublicKey) -> PeerEvent {
    PeerEvent::handshake(peer, Outcome::Answered)
}

fn source_of_initiation(pair: &mut Pair) -> Option<IpAddr> {
    let mut sent = std::iter::from_fn(|| pair.a.node.poll_control(true));
    let initiation = sent.find(|control| control.datagram.len() == 148);
    initiation.expect("an initiation").destination.source
}

fn one_peer(peer: PeerUpdate) -> DeviceUpdate {
    DeviceUpdate {
        peers: vec![peer],
        ..DeviceUpdate::default()
    }
}

fn replace_peers(pair: &mut Pair, peers: Vec<PeerUpdate>) {
    let update = DeviceUpdate {
        replace_peers: true,
        peers,
        ..DeviceUpdate::default()
    };
    pair.a.update(update, pair.now);
}
