//! A batch of inbound packets, which the event loop fills and the writer thread writes to the TUN.

use arrayvec::ArrayVec;

use convoy_packet::vnet::VNET_LEN;

use crate::{
    bounds::{BATCH_BYTES, MAX_BATCH_PACKETS},
    coalesce::{Coalesce, Trains},
    counters::WriterCounters,
    ip::MAX_PACKET,
    pool::Lease,
};

/// Most slots reserved at a time.
pub(crate) const MAX_RESERVED: usize = 16;

/// The longest slot, in bytes: the longest packet with its padding and an AEAD tag.
pub const MAX_SLOT: usize = MAX_PACKET + 16 + 15;

/// Packets begin on a cache line, with room for a virtio header before them.
const ALIGN: usize = 64;

/// A train that is complete closes a batch of at least this many packets: the limit of packets would cut
/// the next train in two.
const ENOUGH_PACKETS: usize = 32;

/// Packets for the TUN. Dropping the batch discards them and returns its buffer to the pool.
#[derive(Debug)]
pub struct InboundBatch(pub(crate) Lease<InboundBuffer>);

impl InboundBatch {
    /// Returns a slot of `len` bytes to decrypt into. The next call discards a slot that was not committed.
    ///
    /// `None` if the batch is full: submit it. An empty batch refuses only a slot longer than [`MAX_SLOT`].
    #[inline]
    pub fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.slot(len)
    }

    /// Keeps the first `len` bytes of the slot as a packet: one whole IP packet without padding.
    ///
    /// # Panics
    /// If `len` is 0, or more than the slot has.
    #[inline]
    pub fn commit(&mut self, len: usize) {
        self.0.commit(len);
    }

    /// Reserves another slot of `len` bytes, of at most 16 at a time; returns whether there was room.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> bool {
        self.0.reserve(len)
    }

    /// The reserved slots.
    #[inline]
    pub fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.0.slots()
    }

    /// The reserved slot `n`.
    #[inline]
    pub fn reserved(&mut self, n: usize) -> Option<&mut [u8]> {
        let (start, end) = *self.0.reserved.get(n)?;
        Some(&mut self.0.buffer[start..end])
    }

    /// Keeps the first `len` bytes of reserved slot `n` as a packet: one whole IP packet without padding.
    ///
    /// Commit slots in ascending order; slots may be left out.
    ///
    /// # Panics
    /// If slot `n` is not reserved, or if `len` is 0 or more than the slot has.
    #[inline]
    pub fn commit_reserved(&mut self, n: usize, len: usize) {
        self.0.commit_reserved(n, len);
    }

    /// Ends the reservation: slots that were not committed are discarded.
    #[inline]
    pub fn release(&mut self) {
        self.0.reserved.clear();
    }

    /// Returns whether it holds no packet.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0
    }

    /// The number of packets in it.
    pub fn packets(&self) -> usize {
        self.0.trains.packets()
    }

    /// The total length of the packets in it, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// The contents of an [`InboundBatch`].
#[derive(Debug)]
pub(crate) struct InboundBuffer {
    pub(crate) buffer: Box<[u8]>,
    pub(crate) trains: Trains,
    /// Counts of its writes; the event loop collects them when the batch comes back.
    pub(crate) counters: WriterCounters,
    pub(crate) written: Written,
    coalesce: Coalesce,
    filled: usize,
    bytes: usize,
    slot_len: usize,
    /// The start and end of each reserved slot.
    reserved: ArrayVec<(usize, usize), MAX_RESERVED>,
    is_full: bool,
}

impl InboundBuffer {
    pub(crate) fn new() -> Self {
        Self {
            // The kernel maps zeroed memory on first touch: a quiet tunnel uses a few pages.
            buffer: vec![0; BATCH_BYTES].into_boxed_slice(),
            trains: Trains::new(),
            counters: WriterCounters::default(),
            written: Written::default(),
            coalesce: Coalesce::default(),
            filled: 0,
            bytes: 0,
            slot_len: 0,
            reserved: ArrayVec::new(),
            is_full: false,
        }
    }

    /// Empties the batch, to be filled again.
    pub(crate) fn clear(&mut self, coalesce: Coalesce) {
        self.trains.clear();
        self.written = Written::default();
        self.coalesce = coalesce;
        self.filled = 0;
        self.bytes = 0;
        self.slot_len = 0;
        self.reserved.clear();
        self.is_full = false;
    }

    #[inline]
    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.slot_len = 0;
        let start = slot_start(self.filled);
        if self.is_full || len > MAX_SLOT || start + len > self.buffer.len() {
            return None;
        }
        self.slot_len = len;
        Some(&mut self.buffer[start..start + len])
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        assert!(
            len > 0 && len <= self.slot_len,
            "a packet lies within its slot"
        );
        let start = slot_start(self.filled);
        self.slot_len = 0;
        self.add(start, start + len);
    }

    #[inline]
    fn reserve(&mut self, len: usize) -> bool {
        let start = slot_start(self.reserved.last().map_or(self.filled, |last| last.1));
        let packets = self.trains.packets() + self.reserved.len();
        let is_full = self.is_full || self.reserved.is_full() || packets == MAX_BATCH_PACKETS;
        let has_room = !is_full && len <= MAX_SLOT && start + len <= self.buffer.len();
        if has_room {
            self.reserved.push((start, start + len));
        }
        has_room
    }

    #[inline]
    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (mut rest, mut at) = (&mut self.buffer[..], 0);
        self.reserved.iter().map(move |&(start, end)| {
            let slot = std::mem::take(&mut rest).split_at_mut(start - at).1;
            let (slot, behind) = slot.split_at_mut(end - start);
            (rest, at) = (behind, end);
            slot
        })
    }

    #[inline]
    fn commit_reserved(&mut self, n: usize, len: usize) {
        let (start, end) = self.reserved[n];
        assert!(
            len > 0 && start + len <= end,
            "a packet lies within its slot"
        );
        self.add(start, start + len);
    }

    #[inline]
    fn add(&mut self, start: usize, end: usize) {
        let len = end - start;
        let completes_train = self.trains.add(&self.buffer, start, end, self.coalesce);
        self.filled = end;
        self.bytes += len;
        let packets = self.trains.packets();
        self.is_full =
            packets == MAX_BATCH_PACKETS || (completes_train && packets >= ENOUGH_PACKETS);
    }
}

/// The start of the slot that follows one ending at `filled`.
#[inline]
fn slot_start(filled: usize) -> usize {
    (filled + VNET_LEN).next_multiple_of(ALIGN)
}

/// The part of a batch that has been written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) trains: usize,
    /// Packets of the next train.
    pub(crate) packets: usize,
}

#[cfg(test)]
mod tests;
