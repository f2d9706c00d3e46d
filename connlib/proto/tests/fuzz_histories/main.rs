//! Fuzzes the history of two peers on a bad network.
//!
//! Once the network is repaired and the settings of both sides agree, they can talk within minutes.

#[path = "../common/mod.rs"]
mod common;
mod world;

use std::{
    collections::HashSet,
    time::{Duration, UNIX_EPOCH},
};

use common::*;
use convoy_fuzz::{Result, Unstructured};
use convoy_proto::{HELD_BYTES, counters::DropReason};
use world::{End, World};

/// Within this time after the repair, packets pass both ways; from then on, all of them do.
const RECOVERY: Duration = Duration::from_secs(180);
/// Every attempt at a handshake ends within this time.
const GIVEN_UP: Duration = Duration::from_secs(125);
const STEPS: [Duration; 10] = [
    Duration::from_millis(10),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(12),
    Duration::from_secs(40),
    Duration::from_secs(125),
    Duration::from_secs(185),
    Duration::from_secs(600),
    Duration::from_secs(2 * 3600),
];

#[test]
fn fuzz_histories() {
    convoy_fuzz::run("histories", 150, 300, histories);
}

fn histories(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new();
    let outcome = world.run(input);
    world.repair();
    world.must_let_go();
    world.must_talk();
    world.must_go_on();
    outcome
}

impl World {
    fn run(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        while !input.is_empty() {
            let [what, how]: [u8; 2] = input.arbitrary()?;
            self.dice = self.dice.wrapping_mul(31).wrapping_add(how.into()) | 1;
            let end = usize::from(what & 1);
            match what >> 1 & 15 {
                0..=2 => self.send(end),
                3..=5 => self.pass(STEPS[usize::from(how) % STEPS.len()]),
                6 => self.fate = [how & 15, how >> 4 & 3, how >> 6],
                7 => self.fate = [0; 3],
                8 => self.fate[0] = 16,
                9 => self.come_again(how),
                10 => self.set_preshared(end, how & 3),
                11 => {
                    // A new address, which the other side is configured with or has to learn.
                    self.ends[end]
                        .host
                        .address
                        .set_port(1000 + u16::from(how & 7));
                    let address = self.ends[end].host.address;
                    if how & 8 == 8 {
                        self.change(1 - end, |peer| peer.endpoint = Some(address));
                    }
                }
                12 => self.set_link(end, how & 1 == 1),
                13 if how & 1 == 1 => self.remove_peer(end),
                13 => self.set_peer(end, how & 2 == 2),
                14 => {
                    self.ends[end].keepalive = [0, 10, 25, u16::MAX][usize::from(how & 3)];
                    let seconds = self.ends[end].keepalive;
                    self.change(end, |peer| peer.persistent_keepalive = Some(seconds));
                }
                _ => self.ends[end].host.node.forget_sources(),
            }
            self.carry();
            self.check();
        }
        Ok(())
    }

    /// Repairs the network, and makes the settings of both sides agree. Changes no more than necessary,
    /// since a change alone may begin a handshake.
    fn repair(&mut self) {
        self.fate = [0; 3];
        self.flying.clear();
        for end in 0..2 {
            self.set_link(end, true);
            if !self.ends[end].has_peer {
                self.set_peer(end, false);
            }
        }
        if self.ends[0].preshared != self.ends[1].preshared {
            self.set_preshared(1, self.ends[0].preshared);
        }
        // It is enough if one side knows the other's endpoint.
        if !self.knows_endpoint(0) && !self.knows_endpoint(1) {
            let address = self.ends[1].host.address;
            self.change(0, |peer| peer.endpoint = Some(address));
        }
        self.carry();
    }

    /// Checks that held packets leave or are given up even if no more are sent. Mostly skipped, so that
    /// the other checks also begin without this pause.
    fn must_let_go(&mut self) {
        if self.roll() < 12 {
            return;
        }
        self.pass(GIVEN_UP);
        for end in &mut self.ends {
            assert_eq!(end.held(), 0, "still held after every handshake ended");
        }
    }

    fn must_talk(&mut self) {
        let began = self.now;
        let first = self.senders.len() as u32;
        loop {
            self.send(0);
            self.send(1);
            self.carry();
            let has_received = |end: &End| {
                let mut packets = end.host.delivered.iter();
                packets.any(|p| number(p) >= first)
            };
            if self.ends.iter().all(has_received) {
                return self.check();
            }
            assert!(self.now - began < RECOVERY, "{}", self.story());
            self.pass(Duration::from_secs(1));
        }
    }

    /// Checks that no packet is lost or held any more, and that sessions are renewed every two minutes.
    fn must_go_on(&mut self) {
        for end in &mut self.ends {
            assert_eq!(end.held(), 0, "still held although there is a session");
            let wall = UNIX_EPOCH + self.now;
            let shown = end.host.node.snapshot(self.now, wall).peers[0].last_handshake;
            let age = shown.and_then(|time| wall.duration_since(time).ok());
            assert!(age.is_some_and(|age| age < RECOVERY), "{age:?}");
        }
        let first = self.senders.len();
        let initiations = self.initiations;
        for _ in 0..36 {
            // Too short for a keepalive. One side sends after the other: if both sent at the same time,
            // both might renew the session.
            self.pass(Duration::from_secs(7));
            for end in 0..2 {
                self.send(end);
                self.carry();
            }
        }
        self.check();
        let last = self.senders.len() as u32;
        for (nth, end) in self.ends.iter().enumerate() {
            let received: HashSet<_> = end.host.delivered.iter().map(|p| number(p)).collect();
            let lost = (first as u32..last)
                .find(|n| self.senders[*n as usize] != nth && !received.contains(n));
            assert_eq!(lost, None, "packet lost on the way to {nth}");
        }
        let renewals = self.initiations - initiations;
        assert!(renewals <= 3, "{renewals} handshakes begun");
    }

    /// Checks the bound of held packets, and that each packet is delivered at most once, to the other
    /// end.
    fn check(&mut self) {
        for (nth, end) in self.ends.iter_mut().enumerate() {
            let held = end.held();
            assert!(
                held <= 128 && held as usize * 24 <= HELD_BYTES,
                "{held} held"
            );
            let mut numbers: Vec<_> = end.host.delivered.iter().map(|p| number(p)).collect();
            let (other, senders) = (1 - nth, &self.senders);
            let is_for_it = |number: &u32| senders.get(*number as usize) == Some(&other);
            assert!(numbers.iter().all(is_for_it), "delivered but never sent");
            numbers.sort_unstable();
            assert!(
                numbers.windows(2).all(|pair| pair[0] != pair[1]),
                "delivered twice"
            );
        }
    }

    fn story(&mut self) -> String {
        let now = self.now;
        let mut story = String::from("the peers cannot talk:");
        for end in &mut self.ends {
            let drops = DropReason::ALL
                .iter()
                .map(|&reason| (reason, end.host.drops(reason)));
            let drops: Vec<_> = drops.filter(|(_, n)| *n > 0).collect();
            let peers = end.host.node.snapshot(now, UNIX_EPOCH + now).peers;
            story += &format!("\n{} {} {drops:?} {peers:?}", end.is_up, end.has_peer);
        }
        story
    }
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(payload(packet).try_into().expect("four bytes"))
}
