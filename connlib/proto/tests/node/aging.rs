//! The effects of time: outages, floods, and hours of traffic.

use std::time::Duration;

use crate::common::*;
use convoy_proto::counters::DropReason;

const STEP: Duration = Duration::from_millis(100);

#[test]
fn an_outage_does_not_end_persistent_keepalives() {
    let mut pair = Pair::new();
    let mut update = pair.b.as_peer();
    update.endpoint = Some(pair.b.address);
    update.persistent_keepalive = Some(25);
    pair.a.set_peer(update, pair.now);
    pair.settle();
    pair.b_sends(b"up");
    pair.settle();
    assert_eq!(pair.a.delivered.len(), 1);
    pair.a_sends(b"into the void");
    pass_in_outage(&mut pair, 600 * SECOND);
    let late = pass_in_outage(&mut pair, 300 * SECOND);
    assert!(late >= 10, "{late} datagrams in five minutes");
}

#[test]
fn packets_after_an_outage_are_all_sent() {
    let mut pair = Pair::connected();
    pair.a_sends(b"into the void");
    pass_in_outage(&mut pair, 130 * SECOND);
    for _ in 0..40 {
        advance(&mut pair, SECOND);
        pair.a_sends(b"anyone?");
        pair.settle();
    }
    assert_eq!(pair.b.delivered.len(), 40);
}

#[test]
fn hours_of_traffic_renew_the_session_every_two_minutes_and_lose_nothing() {
    for initiator_sends in [true, false] {
        let mut pair = Pair::connected();
        let seconds = 2 * 3600;
        for n in 0..seconds {
            pass(&mut pair, SECOND);
            if initiator_sends {
                pair.a_sends(b"steady");
            } else {
                pair.b_sends(b"steady");
            }
            pair.settle();
            let arrived = pair.a.delivered.len() + pair.b.delivered.len();
            assert_eq!(arrived, n + 1, "at {:?}", pair.now);
        }
        let handshakes = pair.a.node.counters().handshakes;
        assert!((55..=61).contains(&handshakes), "{handshakes} handshakes");
    }
}

#[test]
fn an_idle_tunnel_wakes_up_after_hours() {
    let mut pair = Pair::connected();
    for _ in 0..5 {
        pass(&mut pair, 7200 * SECOND);
        pair.a_sends(b"still there?");
        pair.settle();
    }
    assert_eq!(pair.b.delivered.len(), 5);
}

#[test]
fn a_peer_that_answers_a_cookie_gets_through_a_flood_from_elsewhere() {
    let mut pair = Pair::new();
    let initiation = receive_a_cookie(&mut pair, b"held meanwhile");
    advance(&mut pair, 6 * SECOND);
    flood(&mut pair, &initiation);
    pair.b.take_wire(pair.now);
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 1);
}

#[test]
fn a_flood_from_a_peers_own_address_does_not_lock_it_out() {
    let mut pair = Pair::new();
    let mut stranger = Host::new(9);
    let mut to_b = pair.b.as_peer();
    to_b.endpoint = Some(pair.b.address);
    stranger.set_peer(to_b, pair.now);
    let packet = ipv4(stranger.inner, pair.b.inner, b"a forgery");
    stranger.send(&packet, pair.now);
    let without_mac2 = stranger.take_wire(pair.now).remove(0);
    let mut with_a_wrong_mac2 = without_mac2.clone();
    with_a_wrong_mac2[132..].fill(7);
    let from_a = pair.a.address;
    pair.a_sends(b"through the flood");
    for _ in 0..1100 {
        // 20,000 initiations a second.
        for _ in 0..100 {
            pair.b.receive(&without_mac2, from_a, pair.now);
            pair.b.receive(&with_a_wrong_mac2, from_a, pair.now);
        }
        pair.settle();
        advance(&mut pair, Duration::from_millis(10));
        pair.b.tick(pair.now);
    }
    assert_eq!(pair.b.delivered.len(), 1);
}

#[test]
fn a_cookie_expires_after_two_minutes_and_is_useless_from_another_address() {
    let mut pair = Pair::new();
    let initiation = receive_a_cookie(&mut pair, b"x");
    let from_a = pair.a.address;
    let mut elsewhere = from_a;
    elsewhere.set_ip([203, 0, 113, 9].into());
    for (from, later, len) in [(elsewhere, 6, 64), (from_a, 6, 92), (from_a, 150, 64)] {
        advance(&mut pair, later * SECOND);
        pair.a_sends(b"again");
        let mine = pair.a.take_wire(pair.now).pop().expect("an initiation");
        flood(&mut pair, &initiation);
        pair.b.take_wire(pair.now);
        pair.b.receive(&mine, from, pair.now);
        let answer = pair.b.take_wire(pair.now).pop().expect("an answer");
        assert_eq!(answer.len(), len, "from {from} after {later} s");
    }
}

#[test]
fn one_address_cannot_exceed_its_rate_even_with_a_cookie() {
    let mut pair = Pair::new();
    let initiation = receive_a_cookie(&mut pair, b"x");
    let from_a = pair.a.address;
    advance(&mut pair, 6 * SECOND);
    let with_cookie = pair.a.take_wire(pair.now).pop().expect("an initiation");
    flood(&mut pair, &initiation);
    let before = pair.b.drops(DropReason::InboundUnderLoad);
    for _ in 0..100 {
        pair.b.receive(&with_cookie, from_a, pair.now);
    }
    assert_eq!(pair.b.drops(DropReason::InboundUnderLoad) - before, 95);
}

#[test]
fn load_ends_a_second_after_the_flood() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let initiation = pair.a.take_wire(pair.now).remove(0);
    flood(&mut pair, &initiation);
    assert!(pair.b.node.counters().cookies_sent > 0);
    pair.b.take_wire(pair.now);
    advance(&mut pair, 6 * SECOND);
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 1, "without any cookie");
}

#[test]
fn cookie_replies_beyond_the_bound_of_those_that_wait_are_counted() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let initiation = pair.a.take_wire(pair.now).remove(0);
    (0..10).for_each(|_| flood(&mut pair, &initiation));
    let sent = pair.b.node.counters().cookies_sent;
    let asked = pair.b.drops(DropReason::InboundUnderLoad);
    assert_eq!(pair.b.drops(DropReason::OutboundCookieLost), asked - sent);
    assert!(sent > 0 && asked > sent, "{sent} of {asked}");
}

#[test]
fn a_replayed_response_does_not_end_the_session_it_led_to() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let from_b = pair.b.address;
    let initiation = pair.a.take_wire(pair.now).remove(0);
    let from_a = pair.a.address;
    pair.b.receive(&initiation, from_a, pair.now);
    let response = pair.b.take_wire(pair.now).remove(0);
    pair.a.receive(&response, from_b, pair.now);
    pair.settle();
    for n in 0..110 {
        advance(&mut pair, SECOND);
        pair.a.receive(&response, from_b, pair.now);
        pair.a_sends(b"on and on");
        let sent = pair.a.take_wire(pair.now);
        pair.a.receive(&response, from_b, pair.now);
        assert!(sent[0].len() < 148, "data at {:?}", pair.now);
        pair.b.receive(&sent[0], from_a, pair.now);
        pair.b_sends(b"and back");
        pair.settle();
        assert_eq!(pair.a.delivered.len(), n + 1, "at {:?}", pair.now);
    }
    assert_eq!(pair.a.node.counters().handshakes, 1);
}

#[test]
fn an_initiation_that_nobody_answered_does_not_end_a_later_session() {
    let mut pair = Pair::new();
    let mut to_a = pair.a.as_peer();
    to_a.endpoint = Some(pair.a.address);
    pair.b.set_peer(to_a, pair.now);
    pair.b_sends(b"into the void");
    assert_eq!(pair.b.take_wire(pair.now).len(), 1);
    // The other side begins the session, and renews it throughout.
    for _ in 0..300 {
        pass(&mut pair, SECOND);
        pair.a_sends(b"and on");
        pair.settle();
    }
    let arrived = pair.b.delivered.len();
    // It falls silent: packets to it go unanswered for long enough to begin a handshake.
    for _ in 0..17 {
        advance(&mut pair, SECOND);
        pair.b.tick(pair.now);
        pair.b_sends(b"anyone?");
        pair.b.take_wire(pair.now);
    }
    pair.a_sends(b"here");
    for datagram in pair.a.take_wire(pair.now) {
        let from = pair.a.address;
        pair.b.receive(&datagram, from, pair.now);
    }
    assert_eq!(pair.b.delivered.len(), arrived + 1);
}

#[test]
fn replayed_initiations_do_not_end_a_session() {
    let mut pair = Pair::new();
    pair.a_sends(b"x");
    let initiation = pair.a.take_wire(pair.now).remove(0);
    let (from_a, from_b) = (pair.a.address, pair.b.address);
    pair.b.receive(&initiation, from_a, pair.now);
    let response = pair.b.take_wire(pair.now).remove(0);
    pair.a.receive(&response, from_b, pair.now);
    pair.settle();
    for n in 0..110 {
        advance(&mut pair, SECOND);
        pair.b.tick(pair.now);
        pair.b.receive(&initiation, from_a, pair.now);
        pair.b_sends(b"on and on");
        let sent = pair.b.take_wire(pair.now);
        pair.b.receive(&initiation, from_a, pair.now);
        let data = |d: &&Vec<u8>| d.len() < 148;
        pair.a
            .receive(sent.iter().find(data).expect("data"), from_b, pair.now);
        pair.a_sends(b"and back");
        pair.settle();
        assert_eq!(pair.b.delivered.len(), n + 2, "at {:?}", pair.now);
    }
}

/// `a` initiates to `b`, which is under load and asks for a cookie. Returns the initiation.
fn receive_a_cookie(pair: &mut Pair, payload: &[u8]) -> Vec<u8> {
    pair.a_sends(payload);
    let initiation = pair.a.take_wire(pair.now).remove(0);
    let (from_a, from_b) = (pair.a.address, pair.b.address);
    flood(pair, &initiation);
    pair.b.receive(&initiation, from_a, pair.now);
    let cookie = pair.b.take_wire(pair.now).pop().expect("a cookie reply");
    assert_eq!(cookie.len(), 64);
    pair.a.receive(&cookie, from_b, pair.now);
    initiation
}

/// Sends enough copies of an initiation, from another address, to put the node under load.
fn flood(pair: &mut Pair, initiation: &[u8]) {
    let from = ([198, 51, 100, 7], 7).into();
    for _ in 0..250 {
        pair.b.receive(initiation, from, pair.now);
    }
}

/// Lets time pass on both sides: handles due timers and carries the datagrams that they send.
fn pass(pair: &mut Pair, time: Duration) {
    let end = pair.now + time;
    loop {
        let due = [pair.a.node.poll_timeout(), pair.b.node.poll_timeout()];
        let next = due.into_iter().flatten().min().unwrap_or(end).min(end);
        pair.now = next.max(pair.now);
        if pair.now == end {
            break;
        }
        pair.a.tick(pair.now);
        pair.b.tick(pair.now);
        pair.settle();
    }
    pair.a.tick(pair.now);
    pair.b.tick(pair.now);
    pair.settle();
}

/// Lets time pass while all datagrams of `a` are lost; returns their number.
fn pass_in_outage(pair: &mut Pair, time: Duration) -> usize {
    let end = pair.now + time;
    let mut lost = 0;
    while pair.now < end {
        advance(pair, STEP);
        lost += pair.a.take_wire(pair.now).len();
    }
    lost
}

fn advance(pair: &mut Pair, time: Duration) {
    pair.now += time;
    pair.a.tick(pair.now);
}
