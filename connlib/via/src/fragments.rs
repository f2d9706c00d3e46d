//! Puts datagrams together that were cut on their way to the first hop (RFC 791; RFC 8200, section 4.5).
//!
//! A fragment that overlaps others discards the datagram with all its fragments, also those that are still to come
//! (RFC 5722, for IPv4 as well); one that has come before is merely dropped. The memory for all of them is bounded, and the
//! oldest datagram of the sender that has most gives way.

use std::{mem, net::IpAddr, time::Duration};

use convoy_packet::packet::{Fragment, LONGEST_PACKET, Packet, UDP, ip_header_len};
use convoy_proto::counters::{DropReason, Drops};

use pieces::Pieces;

mod pieces;
#[cfg(test)]
pub(crate) mod tests;

/// Most datagrams that lack fragments.
pub(crate) const MAX_INCOMPLETE: usize = 32;
/// Most bytes of these datagrams.
const MAX_BYTES: usize = 2 * LONGEST_PACKET;
/// Longest buffer that is kept for another datagram, in bytes.
const MAX_SPARE: usize = 2_048;
/// Upper bound of all buffers, in bytes.
pub(crate) const BYTES: usize = MAX_BYTES + 2 * MAX_INCOMPLETE * MAX_SPARE;
/// Longest time for which a datagram lacks fragments.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Values of the ECN field (RFC 3168).
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// Datagrams that lack fragments, and one that is complete.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// The oldest first.
    incomplete: Vec<Incomplete>,
    whole: Option<Whole>,
    /// Empty buffers of former datagrams.
    spare: Vec<Vec<u8>>,
}

/// A datagram that is complete.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) source: IpAddr,
    /// The UDP header and the bytes behind it.
    pub(crate) bytes: Vec<u8>,
    pub(crate) ecn: u8,
    /// The number of fragments.
    count: u64,
}

#[derive(Debug)]
struct Incomplete {
    key: Key,
    expires: Duration,
    /// The UDP header and the bytes behind it, as far as they are known. Empty once the datagram is discarded.
    bytes: Vec<u8>,
    pieces: Pieces,
    /// All of its bytes, once the last fragment is there.
    length: Option<usize>,
    /// ECN field of the first fragment, and the set of those of all.
    ecn: u8,
    ecn_seen: u8,
    /// Fragments in `bytes`.
    count: u64,
    /// Whether fragments contradict each other: further ones are dropped.
    is_discarded: bool,
}

/// Fields that the fragments of a datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    source: IpAddr,
    ident: u32,
}

/// The result of adding a fragment to a datagram.
enum Added {
    /// Others are still missing.
    Waits,
    Completes,
    /// Its bytes are known.
    Repeats,
    /// It contradicts others.
    Contradicts,
}

impl Fragments {
    /// Adds a fragment of a packet with a datagram for this end; counts what is dropped. If it completes the datagram, take
    /// that before adding another: [`Fragments::whole`].
    pub(crate) fn add(
        &mut self,
        packet: &Packet<'_>,
        fragment: Fragment,
        now: Duration,
        drops: &mut Drops,
    ) {
        let piece = packet.payload();
        let end = fragment.offset + piece.len();
        let is_odd = !fragment.is_last && !piece.len().is_multiple_of(8);
        // The first fragment of IPv6 alone tells the protocol.
        let tells_protocol = packet.source.is_ipv4() || fragment.offset == 0;
        let is_other = tells_protocol && packet.protocol != UDP;
        let is_too_long = ip_header_len(packet.source) + end > LONGEST_PACKET;
        if piece.is_empty() || is_odd || is_other || is_too_long {
            return drops.add(DropReason::InboundViaFragment, 1);
        }
        let key = Key {
            source: packet.source,
            ident: fragment.ident,
        };
        let index = self.incomplete.iter().position(|it| it.key == key);
        let index = index.unwrap_or_else(|| self.begin(key, now, drops));
        let index = self.make_room(index, end, drops);
        let datagram = &mut self.incomplete[index];
        match datagram.add(piece, fragment, packet.class() & 0b11) {
            Added::Waits => {}
            Added::Completes => self.complete(index, drops),
            Added::Repeats => drops.add(DropReason::InboundViaFragment, 1),
            Added::Contradicts => {
                let lost = 1 + mem::take(&mut datagram.count);
                drops.add(DropReason::InboundViaFragment, lost);
                datagram.is_discarded = true;
                let bytes = mem::take(&mut datagram.bytes);
                self.recycle(bytes);
            }
        }
    }

    /// The datagram that the last fragment has completed.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// Forgets the complete datagram.
    pub(crate) fn advance(&mut self) {
        if let Some(whole) = self.whole.take() {
            self.recycle(whole.bytes);
        }
    }

    /// Number of datagrams that lack fragments.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.incomplete.len()
    }

    /// Returns when to call [`Fragments::expire`] next.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.incomplete.first().map(|it| it.expires)
    }

    /// Drops datagrams whose other fragments have not come in time; returns whether there were any.
    pub(crate) fn expire(&mut self, now: Duration, drops: &mut Drops) -> bool {
        let mut any = false;
        while self.next_expiry().is_some_and(|at| at <= now) {
            self.give_up(0, drops);
            any = true;
        }
        any
    }

    /// Drops everything; returns the number of packets.
    pub(crate) fn clear(&mut self) -> u64 {
        let whole = self.whole.as_ref().map_or(0, |it| it.count);
        let parts: u64 = self.incomplete.iter().map(|it| it.count).sum();
        *self = Self::default();
        whole + parts
    }

    /// Begins a datagram, for which the oldest of the sender that has most gives way if there are too many; returns its place.
    fn begin(&mut self, key: Key, now: Duration, drops: &mut Drops) -> usize {
        if self.incomplete.len() == MAX_INCOMPLETE {
            let count = |index: &usize| {
                let source = self.incomplete[*index].key.source;
                let others = self.incomplete.iter();
                others.filter(|it| it.key.source == source).count()
            };
            self.give_up(self.oldest_of_most(count), drops);
        }
        self.incomplete.push(Incomplete {
            key,
            expires: now + PATIENCE,
            bytes: self.spare.pop().unwrap_or_default(),
            pieces: Pieces::default(),
            length: None,
            ecn: 0,
            ecn_seen: 0,
            count: 0,
            is_discarded: false,
        });
        self.incomplete.len() - 1
    }

    /// Makes room for the first `end` bytes of a datagram; returns its place from then on.
    fn make_room(&mut self, mut index: usize, end: usize, drops: &mut Drops) -> usize {
        let total = |all: &[Incomplete]| all.iter().map(|it| it.bytes.len()).sum::<usize>();
        let key = self.incomplete[index].key;
        if self.incomplete[index].is_discarded {
            return index;
        }
        let more = end.saturating_sub(self.incomplete[index].bytes.len());
        while total(&self.incomplete) + more > MAX_BYTES {
            let bytes = |at: &usize| {
                let it = &self.incomplete[*at];
                let same = self.incomplete.iter();
                let same = same.filter(|other| other.key.source == it.key.source);
                let is_candidate = it.key != key && !it.bytes.is_empty();
                is_candidate.then(|| same.map(|it| it.bytes.len()).sum::<usize>())
            };
            self.give_up(self.oldest_of_most(bytes), drops);
            let place = self.incomplete.iter().position(|it| it.key == key);
            // INVARIANT: it alone fits, so only others give way.
            index = place.expect("the datagram that was found");
        }
        index
    }

    fn oldest_of_most<T: Ord>(&self, most: impl Fn(&usize) -> T) -> usize {
        // Of several that are greatest, the last is found.
        let all = (0..self.incomplete.len()).rev();
        all.max_by_key(most).unwrap_or(0)
    }

    fn give_up(&mut self, index: usize, drops: &mut Drops) {
        let datagram = self.incomplete.remove(index);
        drops.add(DropReason::InboundViaIncomplete, datagram.count);
        self.recycle(datagram.bytes);
    }

    fn complete(&mut self, index: usize, drops: &mut Drops) {
        let datagram = self.incomplete.remove(index);
        let has = |ecn: u8| datagram.ecn_seen & (1 << ecn) != 0;
        // Congestion that the receiver would not learn of (RFC 3168, section 5.3).
        if has(CE) && has(NOT_ECT) {
            drops.add(DropReason::InboundViaFragment, datagram.count);
            return self.recycle(datagram.bytes);
        }
        self.advance();
        self.whole = Some(Whole {
            source: datagram.key.source,
            ecn: if has(CE) { CE } else { datagram.ecn },
            bytes: datagram.bytes,
            count: datagram.count,
        });
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < MAX_INCOMPLETE && (1..=MAX_SPARE).contains(&bytes.capacity()) {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

impl Incomplete {
    fn add(&mut self, piece: &[u8], fragment: Fragment, ecn: u8) -> Added {
        let at = fragment.offset..fragment.offset + piece.len();
        let exceeds = |length: usize| at.end > length || (fragment.is_last && at.end != length);
        let has_more = fragment.is_last && self.bytes.len() > at.end;
        if self.is_discarded || has_more || self.length.is_some_and(exceeds) {
            return Added::Contradicts;
        }
        if self.pieces.overlap(&at) {
            let is_same = self.pieces.hold(&at) && self.bytes[at] == *piece;
            return if is_same {
                Added::Repeats
            } else {
                Added::Contradicts
            };
        }
        if !self.pieces.add(&at) {
            return Added::Contradicts;
        }
        if let Some(more) = at.end.checked_sub(self.bytes.len()) {
            self.bytes.reserve_exact(more);
            self.bytes.resize(at.end, 0);
        }
        self.bytes[at.clone()].copy_from_slice(piece);
        self.count += 1;
        self.ecn_seen |= 1 << ecn;
        if at.start == 0 {
            self.ecn = ecn;
        }
        if fragment.is_last {
            self.length = Some(at.end);
        }
        match self.length {
            Some(length) if self.pieces.hold(&(0..length)) => Added::Completes,
            _ => Added::Waits,
        }
    }
}
