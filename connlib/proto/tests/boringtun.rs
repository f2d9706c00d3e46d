//! A node against another implementation, boringtun, whose clock follows the simulated time:
//! `cargo test -p convoy-proto --features mock-clock --test boringtun`.

mod common;

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    time::Duration,
};

use boringtun::{
    noise::{Tunn, TunnResult},
    x25519,
};
use common::*;
use convoy_proto::{config::PeerUpdate, counters::DropReason};
use mock_instant::MockClock;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Longest time that a datagram takes on a bad network.
const LATEST: Duration = Duration::from_millis(60);
/// boringtun's replay window is narrower than Convoy's; nothing here exceeds it.
const STEP: Duration = Duration::from_millis(10);

#[test]
fn either_side_begins_a_session_that_carries_both_ways() {
    for preshared_key in [None, Some([5; 32])] {
        for tunn_begins in [false, true] {
            let mut duo = Duo::new(preshared_key);
            for _ in 0..3 {
                match tunn_begins {
                    true => duo.tunn_sends(),
                    false => duo.node_sends(),
                }
                duo.pass(STEP);
            }
            duo.node_sends();
            duo.tunn_sends();
            duo.pass(STEP);
            let expected = if tunn_begins { (1, 4) } else { (4, 1) };
            assert_eq!(duo.delivered(), expected, "{preshared_key:?} {tunn_begins}");
        }
    }
}

#[test]
fn different_preshared_keys_make_no_session() {
    let mut duo = Duo::new(Some([5; 32]));
    let mut peer = duo.peer.clone();
    peer.preshared_key = preshared(6);
    duo.host.set_peer(peer, duo.now);
    for _ in 0..10 {
        duo.node_sends();
        duo.tunn_sends();
        duo.pass(SECOND);
    }
    assert_eq!(duo.delivered(), (0, 0));
}

#[test]
fn packets_of_every_length_arrive_whole() {
    let mut duo = Duo::new(None);
    duo.node_sends();
    duo.pass(STEP);
    for len in 0..200 {
        let payload = vec![len as u8; len];
        let (ours, theirs) = (duo.host.inner, duo.inner);
        let (there, back) = (ipv4(ours, theirs, &payload), ipv4(theirs, ours, &payload));
        duo.host.send(&there, duo.now);
        duo.encapsulate(&back);
        duo.pass(STEP);
        assert_eq!(duo.received.pop(), Some(there));
        assert_eq!(duo.host.delivered.pop(), Some(back));
    }
}

#[test]
fn sessions_are_renewed_for_hours_and_lose_nothing() {
    let mut duo = Duo::new(Some([5; 32]));
    duo.node_sends();
    duo.pass(SECOND);
    let mut sent = (1, 0);
    for second in 0..3 * 3600 {
        // Sometimes one side is silent for minutes, so that the other renews the session.
        if second / 600 % 3 != 0 {
            duo.node_sends();
            sent.0 += 1;
        }
        if second / 600 % 3 != 1 {
            duo.tunn_sends();
            sent.1 += 1;
        }
        duo.pass(SECOND);
        assert_eq!(duo.delivered(), sent, "after {second} s");
    }
    let handshakes = duo.host.node.counters().handshakes;
    assert!((60..=100).contains(&handshakes), "{handshakes} handshakes");
}

#[test]
fn a_bad_network_loses_only_what_it_loses_itself() {
    for seed in 0..8 {
        let mut duo = Duo::new((seed % 2 == 0).then_some([5; 32]));
        duo.network = Some(StdRng::seed_from_u64(seed));
        for _ in 0..1000 {
            duo.node_sends();
            duo.tunn_sends();
            duo.pass(SECOND);
        }
        let missing = duo.sent - duo.sum() - duo.lost;
        assert!(missing <= 2, "seed {seed}: {missing} packets are missing");
        assert_eq!(duo.repeated(), 0, "seed {seed}");
        let bad = [DropReason::InboundBadTag, DropReason::InboundMalformed];
        assert!(bad.into_iter().all(|reason| duo.host.drops(reason) == 0));
        duo.network = None;
        duo.pass(10 * SECOND);
        let before = duo.delivered();
        duo.node_sends();
        duo.tunn_sends();
        duo.pass(10 * SECOND);
        duo.node_sends();
        duo.tunn_sends();
        duo.pass(SECOND);
        let after = duo.delivered();
        assert!(after.0 > before.0 && after.1 > before.1, "seed {seed}");
    }
}

#[test]
fn a_cookie_lasts_until_the_next_attempt_whenever_it_was_made() {
    for made_after in (0..260).step_by(3) {
        let mut pair = Pair::new();
        // boringtun's time for a secret begins with the key.
        advance(&mut pair, made_after * SECOND);
        let initiations = before_and_with_a_cookie(&mut pair);
        let is_accepted = is_answered_in_a_flood(&mut pair, &initiations);
        assert!(is_accepted, "made after {made_after} s");
    }
}

#[test]
fn a_cookie_ends_with_the_secret_that_it_was_made_with() {
    let mut pair = Pair::new();
    let initiations = before_and_with_a_cookie(&mut pair);
    for (later, is_accepted) in [(SECOND, true), (150 * SECOND, false)] {
        advance(&mut pair, later);
        let answered = is_answered_in_a_flood(&mut pair, &initiations);
        assert_eq!(answered, is_accepted, "{later:?} later");
    }
}

/// `a` initiates to `b` under load, gets a cookie, and initiates again. Returns both initiations.
fn before_and_with_a_cookie(pair: &mut Pair) -> [Vec<u8>; 2] {
    let (from_a, from_b) = (pair.a.address, pair.b.address);
    pair.a_sends(b"x");
    let before = pair.a.take_wire(pair.now).remove(0);
    flood(pair, &before);
    pair.b.receive(&before, from_a, pair.now);
    let cookie = pair.b.take_wire(pair.now).pop().expect("a cookie reply");
    pair.a.receive(&cookie, from_b, pair.now);
    advance(pair, 6 * SECOND);
    let with_cookie = pair.a.take_wire(pair.now).pop().expect("an initiation");
    [before, with_cookie]
}

/// Whether `b`, under load, answers the second initiation with a response, not with another cookie.
fn is_answered_in_a_flood(pair: &mut Pair, [flooding, second]: &[Vec<u8>; 2]) -> bool {
    let from_a = pair.a.address;
    flood(pair, flooding);
    pair.b.take_wire(pair.now);
    pair.b.receive(second, from_a, pair.now);
    let answer = pair.b.take_wire(pair.now).pop().expect("an answer");
    answer.len() == 92
}

/// Sends enough copies of an initiation, from another address, to put `b` under load.
fn flood(pair: &mut Pair, initiation: &[u8]) {
    let from = ([198, 51, 100, 7], 7).into();
    for _ in 0..250 {
        pair.b.receive(initiation, from, pair.now);
    }
}

fn advance(pair: &mut Pair, time: Duration) {
    pair.now += time;
    MockClock::advance(time);
    pair.a.tick(pair.now);
    pair.b.tick(pair.now);
}

/// A node, a `Tunn` and the network between them.
struct Duo {
    host: Host,
    peer: PeerUpdate,
    tunn: Tunn,
    address: SocketAddr,
    inner: std::net::IpAddr,
    /// Packets that the `Tunn` has received.
    received: Vec<Vec<u8>>,
    now: Duration,
    /// Datagrams in flight, by time of arrival and order of sending, with whether each goes to the node.
    flying: BTreeMap<(Duration, u64), (bool, Vec<u8>)>,
    launched: u64,
    /// Packets sent by either side.
    sent: usize,
    /// Data messages lost on the way.
    lost: usize,
    /// Loses, repeats and delays; `None` if the network is good.
    network: Option<StdRng>,
}

impl Duo {
    fn new(preshared_key: Option<[u8; 32]>) -> Self {
        let mut host = Host::new(1);
        let private = x25519::StaticSecret::from([2; 32]);
        let public = x25519::PublicKey::from(host.public_key().0);
        let tunn = Tunn::new(private, public, preshared_key, None, 7, None);
        let other = Host::new(2);
        let mut peer = other.as_peer();
        peer.endpoint = Some(other.address);
        peer.preshared_key = preshared_key.and_then(|key| preshared(key[0]));
        let now = Duration::from_secs(10_000);
        host.set_peer(peer.clone(), now);
        Self {
            host,
            peer,
            tunn,
            address: other.address,
            inner: other.inner,
            received: Vec::new(),
            now,
            flying: BTreeMap::new(),
            launched: 0,
            sent: 0,
            lost: 0,
            network: None,
        }
    }

    fn node_sends(&mut self) {
        self.sent += 1;
        let payload = self.sent.to_be_bytes();
        let packet = ipv4(self.host.inner, self.inner, &payload);
        self.host.send(&packet, self.now);
        self.collect();
    }

    fn tunn_sends(&mut self) {
        self.sent += 1;
        let payload = self.sent.to_be_bytes();
        let packet = ipv4(self.inner, self.host.inner, &payload);
        self.encapsulate(&packet);
    }

    fn encapsulate(&mut self, packet: &[u8]) {
        let mut buffer = [0; 2048];
        if let TunnResult::WriteToNetwork(datagram) = self.tunn.encapsulate(packet, &mut buffer) {
            let datagram = datagram.to_vec();
            self.launch(true, datagram);
        }
    }

    /// Lets time pass in small steps: delivers datagrams, fires timers.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.arrive();
            if self.now >= end {
                return;
            }
            let step = match self.flying.is_empty() {
                true => (end - self.now).min(SECOND / 4),
                false => STEP.min(end - self.now),
            };
            self.now += step;
            MockClock::advance(step);
            self.host.tick(self.now);
            self.collect();
            let mut buffer = [0; 2048];
            if let TunnResult::WriteToNetwork(datagram) = self.tunn.update_timers(&mut buffer) {
                let datagram = datagram.to_vec();
                self.launch(true, datagram);
            }
        }
    }

    fn collect(&mut self) {
        for datagram in self.host.take_wire(self.now) {
            self.launch(false, datagram);
        }
    }

    fn launch(&mut self, to_node: bool, datagram: Vec<u8>) {
        let mut delay = Duration::ZERO;
        if let Some(random) = &mut self.network {
            if random.random_ratio(1, 20) {
                let carries_packet = datagram[0] == 4 && datagram.len() > 32;
                self.lost += usize::from(carries_packet);
                return;
            }
            delay = random.random_range(Duration::ZERO..LATEST);
            if random.random_ratio(1, 20) {
                let later = random.random_range(delay..=LATEST);
                let copy = (to_node, datagram.clone());
                self.flying.insert((self.now + later, self.launched), copy);
                self.launched += 1;
            }
        }
        let at = (self.now + delay, self.launched);
        self.flying.insert(at, (to_node, datagram));
        self.launched += 1;
    }

    /// Delivers everything that is due.
    fn arrive(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (to_node, datagram) = entry.remove();
            if to_node {
                self.host.receive(&datagram, self.address, self.now);
                self.collect();
            } else {
                self.decapsulate(&datagram);
            }
        }
    }

    fn decapsulate(&mut self, datagram: &[u8]) {
        let mut buffer = [0; 2048];
        let mut input = datagram;
        loop {
            let from = Some(self.host.address.ip());
            match self.tunn.decapsulate(from, input, &mut buffer) {
                TunnResult::WriteToNetwork(answer) => {
                    let answer = answer.to_vec();
                    self.launch(true, answer);
                    // boringtun wants to be called until its queue is empty.
                    input = &[];
                }
                TunnResult::WriteToTunnelV4(packet, _) => {
                    return self.received.push(packet.to_vec());
                }
                _ => return,
            }
        }
    }

    /// Packets that arrived at the `Tunn` and at the node.
    fn delivered(&self) -> (usize, usize) {
        (self.received.len(), self.host.delivered.len())
    }

    fn sum(&self) -> usize {
        self.received.len() + self.host.delivered.len()
    }

    /// Packets that were delivered more than once.
    fn repeated(&self) -> usize {
        let all = self.received.iter().chain(&self.host.delivered);
        self.sum() - all.collect::<HashSet<_>>().len()
    }
}
