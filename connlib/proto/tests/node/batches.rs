//! Many packets in one call, which are sealed and opened up to sixteen at a time.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use crate::common::*;
use convoy_aead::Aead;
use convoy_proto::{DatagramSink, Destination, SinkFull, Staging, counters::DropReason};
use proptest::prelude::*;

#[test]
fn a_burst_arrives_whole_and_in_order_whatever_seals_and_opens_it() {
    for sealing in [Aead::auto(), Aead::ring()] {
        for opening in [Aead::auto(), Aead::ring()] {
            let mut pair = connected_by(sealing, opening);
            // Jumbo packets are sealed alone.
            let lens = [100, 1_400, 0, 3_000, 1_400, 31].into_iter().cycle();
            let burst = packets(&pair, lens.take(100));
            pair.a.send_all(&burst, pair.now);
            assert_eq!(receive_by_b(&mut pair), 100);
            assert_eq!(pair.b.delivered, burst);
        }
    }
}

#[test]
fn of_equal_messages_in_one_batch_one_is_delivered() {
    let mut pair = Pair::connected();
    let wire = burst(&mut pair, 5);
    let twice = [0, 1, 0, 2, 1, 3, 4, 4].map(|n: usize| wire[n].clone());
    let from = pair.a.address;
    pair.b.receive_all(&twice, from, pair.now);
    assert_eq!(pair.b.delivered.len(), 5);
    assert_eq!(pair.b.drops(DropReason::InboundReplay), 3);
}

#[test]
fn a_forged_message_costs_only_itself() {
    for forged in 0..20 {
        let mut pair = Pair::connected();
        let mut wire = burst(&mut pair, 20);
        wire[forged][40] ^= 1;
        let from = pair.a.address;
        pair.b.receive_all(&wire, from, pair.now);
        assert_eq!(pair.b.drops(DropReason::InboundBadTag), 1);
        let expected = (0..20u8).filter(|n| usize::from(*n) != forged);
        let delivered = pair.b.delivered.iter().map(|packet| payload(packet)[0]);
        assert!(delivered.eq(expected));
    }
}

#[test]
fn messages_without_a_slot_stay_unopened_for_later() {
    let mut pair = Pair::connected();
    let wire = burst(&mut pair, 40);
    let from = pair.a.address;
    pair.b.slots = 21;
    assert_eq!(pair.b.receive_all(&wire, from, pair.now), 21);
    assert_eq!(pair.b.delivered.len(), 21);
    pair.b.slots = usize::MAX;
    assert_eq!(pair.b.receive_all(&wire[21..], from, pair.now), 19);
    assert_eq!(pair.b.delivered.len(), 40);
}

#[test]
fn other_datagrams_between_data_messages_are_handled_in_their_turn() {
    let mut pair = Pair::connected();
    let from = pair.a.address;
    let old = burst(&mut pair, 6);
    // The peer begins another handshake, and sends in both sessions.
    pair.now += 121 * SECOND;
    pair.a_sends(b"in the old session");
    let both = pair.a.take_wire(pair.now);
    let mut mixed: Vec<Vec<u8>> = old[..3].to_vec();
    mixed.extend(both);
    mixed.push(b"rubbish".to_vec());
    mixed.extend_from_slice(&old[3..]);
    assert_eq!(pair.b.receive_all(&mixed, from, pair.now), mixed.len());
    assert_eq!(pair.b.delivered.len(), 7);
    assert_eq!(pair.b.drops(DropReason::InboundNotWireGuard), 1);
    let answers = pair.b.take_wire(pair.now);
    assert!(
        answers.iter().any(|answer| answer.len() == 92),
        "a response"
    );
}

/// The answer to an initiation replaces a session that the peer was offered and has not used yet.
#[test]
fn messages_before_an_initiation_are_opened_before_it_is_answered() {
    let mut pair = Pair::new();
    let (from_a, from_b) = (pair.a.address, pair.b.address);
    let burst = packets(&pair, [20; 3]);
    pair.a.send_all(&burst, pair.now);
    let initiation = pair.a.take_wire(pair.now);
    pair.b.receive_all(&initiation, from_a, pair.now);
    let response = pair.b.take_wire(pair.now);
    pair.a.receive_all(&response, from_b, pair.now);
    let mut wire = pair.a.take_wire(pair.now);
    // Without an answer the sender begins another handshake.
    pair.now += 17 * SECOND;
    pair.a.tick(pair.now);
    wire.extend(pair.a.take_wire(pair.now));
    assert_eq!(wire.last().map(Vec::len), Some(148), "an initiation");
    assert_eq!(pair.b.receive_all(&wire, from_a, pair.now), 4);
    assert_eq!(pair.b.delivered, burst);
}

#[test]
fn the_first_message_of_a_new_session_promotes_it_within_its_batch() {
    let mut pair = Pair::new();
    let burst = packets(&pair, [20; 30]);
    pair.a.send_all(&burst, pair.now);
    // Both sides handle the handshake; then all held packets are sent at once.
    let (from_a, from_b) = (pair.a.address, pair.b.address);
    let initiation = pair.a.take_wire(pair.now);
    pair.b.receive_all(&initiation, from_a, pair.now);
    let response = pair.b.take_wire(pair.now);
    pair.a.receive_all(&response, from_b, pair.now);
    assert_eq!(receive_by_b(&mut pair), 30);
    assert_eq!(pair.b.delivered, burst);
    assert_eq!(pair.b.node.counters().handshakes, 1);
    pair.b_sends(b"and back");
    pair.settle();
    assert_eq!(pair.a.delivered.len(), 1);
}

/// A sink that takes as many datagrams as it promises, or fewer.
struct Limited<'a> {
    room: usize,
    refuses: bool,
    sealed: &'a mut Vec<Vec<u8>>,
}

impl DatagramSink for Limited<'_> {
    fn room(&self) -> usize {
        self.room
    }

    fn append(&mut self, _: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        // Its counter is used up, whether it is sent or not.
        self.sealed.push(datagram.to_vec());
        self.room = self.room.saturating_sub(1);
        (!self.refuses).then_some(()).ok_or(SinkFull)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Burst {
        packets: usize,
        room: usize,
        refuses: bool,
    },
    Pass {
        seconds: u64,
    },
    PresharedKey(u8),
    Link,
}

fn step() -> impl Strategy<Value = Step> {
    let burst = (1..40_usize, 0..40_usize, any::<bool>());
    prop_oneof![
        6 => burst.prop_map(|(packets, room, refuses)| Step::Burst { packets, room, refuses }),
        2 => (1..130_u64).prop_map(|seconds| Step::Pass { seconds }),
        1 => (1..4_u8).prop_map(Step::PresharedKey),
        1 => Just(Step::Link),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A session index stands for a key, and a counter for a nonce.
    #[test]
    fn no_counter_is_used_twice_in_a_session(steps in proptest::collection::vec(step(), 1..30)) {
        let mut pair = Pair::connected();
        let (mut sealed, mut seen) = (Vec::new(), HashSet::new());
        for step in steps {
            match step {
                Step::Burst { packets: count, room, refuses } => {
                    let burst = packets(&pair, (0..count).map(|n| n * 97 % 2_100));
                    let burst = burst.iter().map(|packet| TestPacket::new(packet));
                    let mut burst = Burst(burst.collect::<VecDeque<_>>());
                    let mut sink = Limited { room, refuses, sealed: &mut sealed };
                    let node = &mut pair.a.node;
                    node.drain_held(pair.now, &mut Staging::default(), &mut sink);
                    node.handle_outbound(&mut burst, pair.now, &mut Staging::default(), &mut sink);
                    prop_assert!(burst.0.is_empty() || sink.room == 0);
                }
                Step::Pass { seconds } => pair.pass(Duration::from_secs(seconds)),
                Step::PresharedKey(byte) => {
                    let (mut to_a, mut to_b) = (pair.a.as_peer(), pair.b.as_peer());
                    (to_a.preshared_key, to_b.preshared_key) = (preshared(byte), preshared(byte));
                    pair.a.set_peer(to_b, pair.now);
                    pair.b.set_peer(to_a, pair.now);
                }
                Step::Link => {
                    pair.a.node.set_link(false, pair.now);
                    pair.a.node.set_link(true, pair.now);
                }
            }
            let wire = pair.a.take_wire(pair.now);
            sealed.extend(wire.iter().cloned());
            let from = pair.a.address;
            for datagram in wire {
                pair.b.receive(&datagram, from, pair.now);
            }
            pair.settle();
        }
        for datagram in sealed.iter().filter(|datagram| datagram[0] == 4) {
            prop_assert!(seen.insert(datagram[4..16].to_vec()), "twice: {:?}", &datagram[..16]);
        }
    }
}

fn connected_by(sealing: Aead, opening: Aead) -> Pair {
    let mut pair = Pair::new();
    (pair.a, pair.b) = (Host::with(1, sealing), Host::with(2, opening));
    let mut to_b = pair.b.as_peer();
    to_b.endpoint = Some(pair.b.address);
    let to_a = pair.a.as_peer();
    pair.a.set_peer(to_b, pair.now);
    pair.b.set_peer(to_a, pair.now);
    pair.a_sends(b"hello");
    pair.settle();
    pair.b.delivered.clear();
    pair
}

/// Packets from `a` to `b` with payloads of these lengths, which begin with their numbers.
fn packets(pair: &Pair, lens: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    let (from, to) = (pair.a.inner, pair.b.inner);
    let payloads = lens.into_iter().zip(0u8..).map(|(len, n)| vec![n; len]);
    payloads.map(|payload| ipv4(from, to, &payload)).collect()
}

/// The datagrams that `a` sends for a burst of this many packets.
fn burst(pair: &mut Pair, count: usize) -> Vec<Vec<u8>> {
    let burst = packets(pair, vec![500; count]);
    pair.a.send_all(&burst, pair.now);
    pair.a.take_wire(pair.now)
}

/// Carries all that `a` has sent in one call; returns the number of datagrams.
fn receive_by_b(pair: &mut Pair) -> usize {
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.receive_all(&wire, from, pair.now)
}
