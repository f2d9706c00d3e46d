//! Fuzzes the fragments of several senders against a model that remembers what was sent and what has arrived.

use std::{collections::BTreeSet, net::Ipv6Addr};

use convoy_fuzz::{Result, Unstructured};

use super::*;
use convoy_packet::vnet::VnetHeader;

const SENDERS: [&str; 3] = ["10.9.0.2", "10.9.0.3", "fd09::2"];
const PROTOCOLS: [u8; 2] = [1, 17];
/// Few, so that packets of different senders or protocols have the same.
const IDENTS: u32 = 6;
/// Incomplete packets of a sender that nothing displaces: of too many, another sender has more.
const NEVER_DISPLACED: usize = MOST / SENDERS.len();

#[test]
fn fuzz_fragments() {
    convoy_fuzz::run("fragments", 4_000, 600, fragments);
}

/// Requires that whatever is put together was sent whole, and that whatever has arrived in time is put together.
fn fragments(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::default();
    while !input.is_empty() {
        match input.int_in_range(0..=9)? {
            0..=1 => world.begin(input)?,
            2 => world.wait(input.int_in_range(0..=4)?),
            3 => world.forge(input)?,
            _ => world.deliver(input)?,
        }
        assert!(world.fragments.0.len() <= MOST);
    }
    Ok(())
}

#[derive(Default)]
struct World {
    fragments: Fragments,
    counters: Counters,
    now: i64,
    sent: Vec<Sent>,
}

/// A packet under way.
struct Sent {
    sender: usize,
    ident: u32,
    protocol: u8,
    payload: Vec<u8>,
    /// Length of a fragment.
    cut: usize,
    /// Where the fragments begin that have arrived since it was put together last.
    arrived: BTreeSet<usize>,
    expires: i64,
    /// Whether it may have been displaced, or a forged fragment have come between.
    is_uncertain: bool,
}

impl World {
    fn begin(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let sender = input.choose_index(SENDERS.len())?;
        let (ident, protocol) = (input.int_in_range(1..=IDENTS)?, *input.choose(&PROTOCOLS)?);
        let (length, cut) = (
            input.int_in_range(40..=200)?,
            8 * input.int_in_range(1..=4)?,
        );
        let serial = self.sent.len();
        let sent = Sent {
            sender,
            ident,
            protocol,
            payload: (0..length).map(|at| (at * 7 + serial * 13) as u8).collect(),
            cut,
            arrived: BTreeSet::new(),
            expires: 0,
            is_uncertain: false,
        };
        if self.sent.iter().all(|it| it.key() != sent.key()) {
            self.sent.push(sent);
        }
        Ok(())
    }

    /// Some quarters of what a packet may take go by.
    fn wait(&mut self, quarters: i64) {
        self.now += quarters * PATIENCE / 4;
        if quarters == 4 {
            for it in &mut self.sent {
                it.arrived.clear();
                it.is_uncertain = false;
            }
        }
    }

    /// A fragment of a packet arrives, perhaps again.
    fn deliver(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let index = input.choose_index(self.sent.len())?;
        let it = &self.sent[index];
        let at = it.cut * input.choose_index(it.count())?;
        let end = it.payload.len().min(at + it.cut);
        let (part, is_last) = (it.payload[at..end].to_vec(), end == it.payload.len());
        self.arrive(index, at);
        let whole = self.add(index, at, is_last, &part);
        let it = &mut self.sent[index];
        if it.is_uncertain {
            if whole.is_some() {
                it.arrived.clear();
            }
            return Ok(());
        }
        assert_eq!(whole.is_some(), it.arrived.len() == it.count());
        if let Some(whole) = whole {
            let whole = Packet::parse(VnetHeader::default(), &whole).unwrap();
            assert_eq!(whole.payload(), it.payload);
            assert_eq!((whole.source, whole.protocol), (it.source(), it.protocol));
            it.arrived.clear();
        }
        Ok(())
    }

    /// A fragment with the number of a packet that has other bytes, at any place.
    fn forge(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let index = input.choose_index(self.sent.len())?;
        let at = 8 * input.int_in_range(0..=0x1fff)?;
        let part = vec![0x55; input.int_in_range(0..=64)?];
        self.sent[index].is_uncertain = true;
        self.arrive(index, at);
        self.add(index, at, input.arbitrary()?, &part);
        Ok(())
    }

    fn arrive(&mut self, index: usize, at: usize) {
        let now = self.now;
        let it = &mut self.sent[index];
        if it.is_uncertain {
            // If it was discarded meanwhile, this fragment begins it again.
            it.expires = now + PATIENCE;
        } else if !it.is_held(now) {
            it.arrived.clear();
            it.expires = now + PATIENCE;
        }
        it.arrived.insert(at);
        let mut held = [0; SENDERS.len()];
        let all = self.sent.iter().filter(|it| it.is_held(now));
        all.for_each(|it| held[it.sender] += 1);
        if held.iter().sum::<usize>() > MOST {
            for it in &mut self.sent {
                it.is_uncertain |= held[it.sender] > NEVER_DISPLACED;
            }
        }
    }

    fn add(&mut self, index: usize, at: usize, is_last: bool, part: &[u8]) -> Option<Vec<u8>> {
        let it = &self.sent[index];
        let fragment = Fragment {
            ident: it.ident,
            offset: at,
            is_last,
        };
        let packet = Packet {
            vnet: VnetHeader::default(),
            bytes: part,
            source: it.source(),
            destination: match it.source() {
                IpAddr::V4(_) => [198, 51, 100, 7].into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            },
            protocol: it.protocol,
            payload_at: 0,
            fragment: Some(fragment),
        };
        let now = self.now;
        let sender = it.sender as u32;
        self.fragments
            .add(&packet, fragment, sender, now, &self.counters)
    }
}

impl Sent {
    fn source(&self) -> IpAddr {
        SENDERS[self.sender].parse().unwrap()
    }

    /// Returns what all fragments of a packet share; for IPv6 without the protocol (RFC 791, RFC 8200 §4.5).
    fn key(&self) -> (usize, u32, Option<u8>) {
        let protocol = self.source().is_ipv4().then_some(self.protocol);
        (self.sender, self.ident, protocol)
    }

    fn count(&self) -> usize {
        self.payload.len().div_ceil(self.cut)
    }

    fn is_held(&self, now: i64) -> bool {
        !self.arrived.is_empty() && self.expires > now
    }
}
