//! Fuzzes the packets that arrive from the first hop, whole and cut, some of them forged, against a model of the datagrams
//! that were sent.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use convoy_aead::Aead;
use convoy_fuzz::{Result, Unstructured};
use convoy_packet::packet::{UDP, ip_header_len, write_ip_header};
use convoy_proto::{
    Node, PacketSink, Planner,
    config::{DeviceUpdate, PeerUpdate, PublicKey},
};

use crate::{
    fragments::{MAX_INCOMPLETE, PATIENCE, tests::part},
    hop::Hop,
};

const PORT: u16 = 50_000;
const PEERS: [&str; 2] = ["192.0.2.3", "2001:db8::3"];
const OWN: [&str; 2] = ["10.9.0.1", "fd00:9::1"];
/// Few, so that datagrams of different senders have the same.
const IDENTS: u32 = 6;
const STEP: Duration = Duration::from_millis(750);

#[test]
fn fuzz_hops() {
    convoy_fuzz::run("hops", 2_000, 500, hops);
}

/// Requires that the inner tunnel gets what was sent, whole, once and in time, and that nothing grows beyond its bound.
fn hops(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new();
    while !input.is_empty() {
        match input.int_in_range(0..=11)? {
            0..=1 => world.begin(input)?,
            2 => world.wait(input.int_in_range(1..=4)?),
            3 => world.forge(input)?,
            4 => world.pass_any(input)?,
            5 => world.pass_whole(input)?,
            6 => world.set_link(),
            _ => world.pass_part(input)?,
        }
    }
    world.wait(4);
    assert_eq!(world.hop.fragments.next_expiry(), None);
    assert_eq!(world.hop.fragments.clear(), 0);
    Ok(())
}

struct World {
    hop: Hop,
    inner: Node,
    now: Duration,
    sent: Vec<Sent>,
    /// Whether anything may be complete, as packets were forged.
    is_uncertain: bool,
}

/// A datagram under way.
struct Sent {
    source: IpAddr,
    ident: u32,
    /// Behind the UDP header.
    payload: Vec<u8>,
    /// Length of a fragment.
    cut: usize,
    /// Fragments that have arrived since it was put together last.
    arrived: BTreeSet<usize>,
    expires: Duration,
}

impl World {
    fn new() -> Self {
        let (mut hop, mut inner) = (Hop::new(Aead::ring()), Node::new(Aead::ring()));
        hop.place(&OWN.map(address), PORT);
        let peers = PEERS.iter().zip(1u8..).map(|(peer, n)| PeerUpdate {
            endpoint: Some((address(peer), 51_820).into()),
            ..PeerUpdate::new(PublicKey([n; 32]))
        });
        let update = DeviceUpdate {
            peers: peers.collect(),
            ..DeviceUpdate::default()
        };
        let now = Duration::from_secs(1_000);
        inner.apply(Planner::default().plan(update), now);
        Self {
            hop,
            inner,
            now,
            sent: Vec::new(),
            is_uncertain: false,
        }
    }

    fn begin(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let source = address(input.choose(&PEERS)?);
        let ident = input.int_in_range(1..=IDENTS)?;
        let (length, cut) = (
            input.int_in_range(30..=200)?,
            8 * input.int_in_range(1..=4)?,
        );
        // No message of WireGuard, so that the inner tunnel only counts it.
        let serial = self.sent.len();
        let byte = |at: usize| (at * 7 + serial * 13) as u8 | 0x80;
        let is_known = |it: &Sent| (it.source, it.ident) == (source, ident);
        if !self.sent.iter().any(is_known) {
            self.sent.push(Sent {
                source,
                ident,
                payload: (0..length).map(byte).collect(),
                cut,
                arrived: BTreeSet::new(),
                expires: Duration::ZERO,
            });
        }
        Ok(())
    }

    fn wait(&mut self, steps: u32) {
        self.now += steps * STEP;
        while self.hop.handle_timeout(self.now) {}
        for it in self.sent.iter_mut().filter(|it| it.expires <= self.now) {
            it.arrived.clear();
        }
    }

    /// A fragment arrives, perhaps again.
    fn pass_part(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let index = input.choose_index(self.sent.len())?;
        let it = &mut self.sent[index];
        let bytes = udp(&it.payload, PORT);
        let count = bytes.len().div_ceil(it.cut);
        let n = input.choose_index(count)?;
        let piece = bytes.chunks(it.cut).nth(n).unwrap_or_default();
        let packet = part(it.source, it.ident, n * it.cut, piece, n + 1 == count);
        if it.arrived.is_empty() {
            it.expires = self.now + PATIENCE;
        }
        it.arrived.insert(n);
        let is_complete = it.arrived.len() == count;
        if is_complete {
            it.arrived.clear();
        }
        let payload = is_complete.then(|| it.payload.clone());
        let delivered = self.pass(&packet, input)?;
        if !self.is_uncertain {
            assert_eq!(delivered, payload);
        }
        Ok(())
    }

    /// A datagram that was not cut, perhaps from a stranger or for another port.
    fn pass_whole(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let Some(it) = self.sent.last() else {
            return Ok(());
        };
        let (payload, source) = (it.payload.clone(), it.source);
        let port = if input.arbitrary()? { PORT } else { 53 };
        let packet = whole(source, &udp(&payload, port));
        let delivered = self.pass(&packet, input)?;
        assert_eq!(delivered, (port == PORT).then_some(payload));
        Ok(())
    }

    /// A fragment with the number of a datagram that has other bytes, at any place.
    fn forge(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        self.is_uncertain = true;
        let source = address(input.choose(&[PEERS[0], PEERS[1], "198.51.100.9"])?);
        let ident = input.int_in_range(1..=3 * IDENTS)?;
        let offset = 8 * input.int_in_range(0..=0x1fff)?;
        let bytes = vec![0x55; input.int_in_range(0..=64)?];
        let packet = part(source, ident, offset, &bytes, input.arbitrary()?);
        self.pass(&packet, input).map(drop)
    }

    /// Any bytes behind the version of a packet.
    fn pass_any(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        self.is_uncertain = true;
        let length = input.int_in_range(0..=80)?.min(input.len());
        let mut packet = input.bytes(length)?.to_vec();
        if let Some(first) = packet.first_mut() {
            *first = *first & 0x0f | if *first & 0x10 == 0 { 0x40 } else { 0x60 };
        }
        self.pass(&packet, input).map(drop)
    }

    fn set_link(&mut self) {
        for is_up in [false, true] {
            self.hop.set_link(is_up, self.now);
        }
        self.sent.iter_mut().for_each(|it| it.arrived.clear());
    }

    /// Lets a packet of the outer tunnel arrive; returns the datagram that the inner one got.
    fn pass(&mut self, packet: &[u8], input: &mut Unstructured<'_>) -> Result<Option<Vec<u8>>> {
        let inbound = &mut self.hop.inbound;
        assert!(inbound.reserve(packet.len()));
        inbound.slot(0).expect("a slot").copy_from_slice(packet);
        inbound.commit(0, packet.len());
        inbound.release();
        let mut is_admitted = !input.ratio(1, 4)?;
        let mut delivered = Vec::new();
        let mut turns = 0;
        while !self.hop.is_drained() {
            let admits = |bytes: &[u8]| {
                if is_admitted {
                    delivered.push(bytes.to_vec());
                }
                is_admitted
            };
            let (inner, now) = (&mut self.inner, self.now);
            let handled = self.hop.deliver(inner, now, &mut Nowhere, admits);
            assert!(!handled.is_sink_full);
            is_admitted = true;
            turns += 1;
            assert!(turns <= 2, "it makes no progress");
        }
        assert!(self.hop.fragments.len() <= MAX_INCOMPLETE);
        assert!(delivered.len() <= 1);
        Ok(delivered.pop())
    }
}

/// The TUN, which gets nothing.
struct Nowhere;

impl PacketSink for Nowhere {
    fn reserve(&mut self, _: usize) -> bool {
        false
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        std::iter::empty()
    }

    fn slot(&mut self, _: usize) -> Option<&mut [u8]> {
        None
    }

    fn commit(&mut self, _: usize, _: usize) {}

    fn release(&mut self) {}
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn udp(payload: &[u8], port: u16) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let header = [51_820, port, length, 0].map(u16::to_be_bytes);
    [header.as_flattened(), payload].concat()
}

fn whole(source: IpAddr, datagram: &[u8]) -> Vec<u8> {
    let own = OWN.map(address)[usize::from(source.is_ipv6())];
    let mut packet = vec![0; ip_header_len(source)];
    packet.extend(datagram);
    write_ip_header(&mut packet, source, own, UDP, datagram.len());
    packet
}
