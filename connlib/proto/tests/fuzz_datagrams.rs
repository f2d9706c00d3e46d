//! Fuzzes a node that has a session with datagrams of any kind: it accepts none that the peer has not
//! sent, accounts for each once, and goes on carrying traffic.

mod common;

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use common::*;
use convoy_fuzz::{Result, Unstructured};
use convoy_proto::counters::DropReason;

#[test]
fn fuzz_datagrams() {
    convoy_fuzz::run("datagrams", 300, 400, datagrams);
}

/// Well below the age at which a session is renewed, so that no renewal gets lost.
const LONGEST: Duration = Duration::from_secs(100);

fn datagrams(input: &mut Unstructured<'_>) -> Result<()> {
    let mut attack = Attack::new();
    let outcome = attack.run(input);
    attack.settle();
    // Whatever happened before, packets must pass now.
    for _ in 0..2 {
        attack.send(Side::A);
        attack.send(Side::B);
    }
    let before = (attack.pair.a.delivered.len(), attack.pair.b.delivered.len());
    attack.settle();
    let after = (attack.pair.a.delivered.len(), attack.pair.b.delivered.len());
    assert_eq!(
        (before.0 + 2, before.1 + 2),
        after,
        "packets no longer pass"
    );
    attack.check_deliveries();
    outcome
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    A,
    B,
}

struct Attack {
    pair: Pair,
    /// Everything that either side has sent, with its receiver.
    seen: Vec<(Side, Vec<u8>)>,
    /// Datagrams that have not arrived.
    withheld: Vec<(Side, Vec<u8>)>,
    sent: u32,
    began: Duration,
}

impl Attack {
    fn new() -> Self {
        let mut attack = Self {
            pair: Pair::new(),
            seen: Vec::new(),
            withheld: Vec::new(),
            sent: 0,
            began: Duration::ZERO,
        };
        attack.began = attack.pair.now;
        for side in [Side::A, Side::B] {
            attack.send(side);
            attack.settle();
        }
        assert!(
            attack.seen.len() >= 4,
            "expected two handshake messages and two packets"
        );
        attack
    }

    fn run(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..40 {
            let to = if input.arbitrary()? { Side::A } else { Side::B };
            match input.int_in_range(0..=9u8)? {
                0 => {
                    let len = input.int_in_range(0..=160)?;
                    let datagram = input.bytes(len.min(input.len()))?.to_vec();
                    self.offer(to, &datagram, from(input)?);
                }
                1..=4 => {
                    let (_, datagram) = input.choose(&self.seen)?;
                    let datagram = changed(datagram.clone(), input)?;
                    self.offer(to, &datagram, from(input)?);
                }
                5 => self.send(to),
                6 => self.settle(),
                7 if !self.withheld.is_empty() => {
                    let nth = input.choose_index(self.withheld.len())?;
                    let (to, datagram) = self.withheld.swap_remove(nth);
                    self.offer(to, &datagram, from(input)?);
                }
                8 => {
                    let step = Duration::from_millis(input.int_in_range(1..=15_000)?);
                    if self.pair.now + step < self.began + LONGEST {
                        self.pair.now += step;
                        self.pair.a.tick(self.pair.now);
                        self.pair.b.tick(self.pair.now);
                        self.collect();
                    }
                }
                _ => self.flood(to, input)?,
            }
        }
        Ok(())
    }

    /// Sends handshake messages with a valid MAC1 until the node is under load.
    fn flood(&mut self, to: Side, input: &mut Unstructured<'_>) -> Result<()> {
        let is_rare = input.ratio(1, 16)?;
        let initiation = self.seen.iter().find(|(at, d)| *at == to && d.len() == 148);
        if let (true, Some((_, initiation))) = (is_rare, initiation) {
            let (initiation, from) = (initiation.clone(), from(input)?);
            for _ in 0..210 {
                self.offer(to, &initiation, from);
            }
        }
        Ok(())
    }

    fn send(&mut self, side: Side) {
        let payload = self.sent.to_be_bytes();
        self.sent += 1;
        match side {
            Side::A => self.pair.a_sends(&payload),
            Side::B => self.pair.b_sends(&payload),
        }
        self.collect();
    }

    /// Takes the datagrams of both sides off the wire.
    fn collect(&mut self) {
        let now = self.pair.now;
        let to_b = self.pair.a.take_wire(now).into_iter().map(|d| (Side::B, d));
        let to_a = self.pair.b.take_wire(now).into_iter().map(|d| (Side::A, d));
        let sent: Vec<_> = to_b.chain(to_a).collect();
        self.seen.extend(sent.iter().cloned());
        self.withheld.extend(sent);
    }

    /// Delivers everything that was sent.
    fn settle(&mut self) {
        self.collect();
        while !self.withheld.is_empty() {
            let (to, datagram) = self.withheld.remove(0);
            let from = match to {
                Side::A => self.pair.b.address,
                Side::B => self.pair.a.address,
            };
            self.offer(to, &datagram, from);
        }
    }

    fn offer(&mut self, to: Side, datagram: &[u8], from: SocketAddr) {
        let now = self.pair.now;
        let is_genuine = self
            .seen
            .iter()
            .any(|(side, sent)| *side == to && authenticated(sent) == authenticated(datagram));
        let host = match to {
            Side::A => &mut self.pair.a,
            Side::B => &mut self.pair.b,
        };
        let (drops, handshakes) = (all_drops(host), host.node.counters().handshakes);
        let (delivered, endpoint) = (host.delivered.len(), endpoint(host, now));
        assert_eq!(host.offer(datagram, from, now), Ok(()));
        let dropped = all_drops(host) - drops;
        let delivered = host.delivered.len() - delivered;
        let has_handshaken = host.node.counters().handshakes > handshakes;
        let is_data = datagram.first() == Some(&4);
        let is_cookie = datagram.first() == Some(&3);
        match (dropped, delivered) {
            (1, 0) => assert!(!has_handshaken),
            (0, 1) => assert!(is_genuine && is_data && from.port() != 0),
            (0, 0) => assert!(
                is_genuine && from.port() != 0 && (!is_data || datagram.len() == 32),
                "neither delivered nor counted: {datagram:?}"
            ),
            other => panic!("counted more than once: {other:?}"),
        }
        // Only an authenticated datagram moves the endpoint.
        let is_proof = dropped == 0 && !is_cookie;
        let expected = if is_proof { Some(from) } else { endpoint };
        assert_eq!(self::endpoint(host, now), expected, "{datagram:?}");
        let before = self.seen.len();
        self.collect();
        let answers = &self.seen[before..];
        assert!(
            dropped == 0 || answers.iter().all(|(_, d)| d[0] == 3 && d.len() == 64),
            "more than a cookie for an unauthenticated sender"
        );
        assert!(answers.len() <= 1 || dropped == 0 && !is_data && !is_cookie);
    }

    /// Checks that no packet was delivered twice, and none that was not sent.
    fn check_deliveries(&self) {
        let mut numbers = HashSet::new();
        for packet in self.pair.a.delivered.iter().chain(&self.pair.b.delivered) {
            let number = u32::from_be_bytes(payload(packet).try_into().expect("four bytes"));
            assert!(number < self.sent && numbers.insert(number));
        }
    }
}

fn endpoint(host: &mut Host, now: Duration) -> Option<SocketAddr> {
    host.snapshot(now).peers[0].endpoint
}

fn all_drops(host: &mut Host) -> u64 {
    DropReason::ALL
        .iter()
        .map(|&reason| host.drops(reason))
        .sum()
}

/// A datagram without its MAC2, which is checked only under load.
fn authenticated(datagram: &[u8]) -> &[u8] {
    match (datagram.first(), datagram.len()) {
        (Some(1), 148) | (Some(2), 92) => &datagram[..datagram.len() - 16],
        _ => datagram,
    }
}

fn changed(mut datagram: Vec<u8>, input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    for _ in 0..input.int_in_range(0..=3)? {
        let at = input.choose_index(datagram.len())?;
        datagram[at] = match input.arbitrary()? {
            true => input.arbitrary()?,
            false => datagram[at] ^ 1 << input.int_in_range(0..=7)?,
        };
    }
    if input.ratio(1, 8)? {
        datagram.resize(input.int_in_range(1..=200)?, 0);
    }
    Ok(datagram)
}

fn from(input: &mut Unstructured<'_>) -> Result<SocketAddr> {
    let address: SocketAddr = *input.choose(&[
        ([192, 0, 2, 1], 51820).into(),
        ([192, 0, 2, 2], 51820).into(),
        ([198, 51, 100, 7], 7).into(),
        ([198, 51, 100, 7], 0).into(),
    ])?;
    Ok(address)
}
