//! Beginnings of flows of `--nat user`, as in `connlib/gateway/src`: a map with the standard library's SipHash
//! or with FxHash, and the beginning of a flow inline or out of line (`#[cold]`).
//!
//! Packets of a flow that has begun pass in the kernel. Only what begins a flow is looked up here, and what comes until it
//! has begun. The task and the sockets of a flow are left out: they would hide any difference. [`super::flow_table`] has
//! the map alone, also with keys that a peer chooses so that they collide.

#![expect(
    clippy::disallowed_types,
    reason = "it is measured here, beside the hash that is used"
)]

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use divan::{Bencher, black_box, counter::ItemsCount};
use etherparse::PacketBuilder;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustc_hash::FxBuildHasher;

use crate::each;

const FLOWS: [usize; 2] = [100, 1_000];
const PENDING: usize = 100;
/// Packets per repetition.
const PACKETS: usize = 64;
/// The length of an IPv4 header without options.
const IPV4: usize = 20;
/// Its number for TCP.
const TCP: u32 = 6;

/// A way to hash, and where a flow begins.
trait Way {
    type State: BuildHasher + Default;
    const IS_COLD: bool;
}

/// Defines ways, the first one as it is.
macro_rules! ways {
    ($($way:ident: $state:ty, $is_cold:literal;)*) => {$(
        struct $way;

        impl Way for $way {
            type State = $state;
            const IS_COLD: bool = $is_cold;
        }
    )*};
}

ways! {
    Sip: RandomState, false;
    SipCold: RandomState, true;
    Fx: FxBuildHasher, false;
    FxCold: FxBuildHasher, true;
}

/// A peer and its target.
type Ends = (SocketAddr, SocketAddr);

/// The flows that begin, each with the packet that has begun it, until its target has answered.
struct Flows<W: Way>(Mutex<HashMap<Ends, Box<[u8]>, W::State>>);

#[divan::bench(types = [Sip, SipCold, Fx, FxCold], args = FLOWS)]
fn packet_of_a_flow_that_has_begun<W: Way>(bencher: Bencher<'_, '_>, flows: usize) {
    let (table, packets) = table::<W>(flows);
    each(bencher, ItemsCount::new(PACKETS), || {
        for packet in packets.iter().take(PACKETS) {
            table.receive(black_box(packet));
        }
    });
}

#[divan::bench(types = [Sip, SipCold, Fx, FxCold])]
fn syn_beside_pending_connects<W: Way>(bencher: Bencher<'_, '_>) {
    let (table, _) = table::<W>(PENDING);
    let packets = syns(PACKETS, 9);
    each(bencher, ItemsCount::new(PACKETS), || {
        for packet in &packets {
            table.receive(black_box(packet));
            table.end(black_box(packet));
        }
    });
}

/// A table in which this many flows have begun, with the packets that began them.
fn table<W: Way>(flows: usize) -> (Flows<W>, Vec<Vec<u8>>) {
    let table = Flows::<W>(Mutex::default());
    let packets = syns(flows, 7);
    packets.iter().for_each(|packet| table.receive(packet));
    assert_eq!(table.all().len(), flows);
    (table, packets)
}

/// SYNs of a few peers to servers anywhere.
fn syns(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut syn = |_| {
        let peer = Ipv4Addr::new(10, 9, 0, random.random_range(2..10));
        let target = Ipv4Addr::from_bits(random.random());
        let port = random.random_range(32_768..61_000);
        let builder = PacketBuilder::ipv4(peer.octets(), target.octets(), 64);
        let builder = builder.tcp(port, 443, random.random(), 65_535).syn();
        let mut packet = Vec::new();
        builder.write(&mut packet, &[]).map(|()| packet)
    };
    let packets = (0..count).map(&mut syn).collect::<Result<_, _>>();
    packets.unwrap_or_default()
}

impl<W: Way> Flows<W> {
    #[inline(never)]
    fn receive(&self, packet: &[u8]) {
        let Some(ends) = ends(packet) else {
            return;
        };
        let is_known = self.all().contains_key(&ends);
        match (is_known, W::IS_COLD) {
            (true, _) => {}
            (false, true) => self.begin_out_of_line(ends, packet),
            (false, false) => self.begin(ends, packet),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_out_of_line(&self, ends: Ends, packet: &[u8]) {
        self.begin(ends, packet);
    }

    #[inline(always)]
    fn begin(&self, ends: Ends, packet: &[u8]) {
        if is_whole(packet) {
            self.all().insert(ends, packet.into());
        }
    }

    fn end(&self, packet: &[u8]) {
        if let Some(ends) = ends(packet) {
            self.all().remove(&ends);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Ends, Box<[u8]>, W::State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ends of a packet over IPv4 without options.
fn ends(packet: &[u8]) -> Option<Ends> {
    let (ip, tcp) = packet.split_at_checked(IPV4)?;
    let address = |at: usize| ip[at..].first_chunk().map(|it| Ipv4Addr::from(*it));
    let port = |at: usize| Some(u16::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
    let (peer, target) = ((address(12)?, port(0)?), (address(16)?, port(2)?));
    Some((peer.into(), target.into()))
}

/// Returns whether the sum over the segment and its pseudo-header is right (RFC 9293, section 3.1).
fn is_whole(packet: &[u8]) -> bool {
    let (ip, tcp) = packet.split_at(IPV4);
    let words = ip[12..].chunks_exact(2).chain(tcp.chunks_exact(2));
    let words = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>() + TCP + tcp.len() as u32;
    (sum & 0xffff) + (sum >> 16) == 0xffff
}
