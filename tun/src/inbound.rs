//! A batch of packets on their way from the event loop to the TUN.

use crate::{
    BATCH_BYTES, MAX_BATCH_PACKETS,
    coalesce::{Coalesce, Trains},
    counters::WriterCounters,
    ip::MAX_PACKET,
    pool::Lease,
    vnet::VNET_LEN,
    write::Written,
};

/// The longest slot, in bytes: the longest packet, the tag behind it and its padding.
pub const MAX_SLOT: usize = MAX_PACKET + 16 + 15;

/// Where packets begin: on a cache line, with room for a virtio header in front.
const ALIGN: usize = 64;

/// A complete train ends a batch of at least this many packets: the next train would be cut in
/// two at the limit.
const ENOUGH_PACKETS: usize = 32;

/// Packets for the TUN. Dropping the batch gives it up, and its buffer back.
#[derive(Debug)]
pub struct InboundBatch(pub(crate) Lease<InboundBuffer>);

impl InboundBatch {
    /// `len` bytes to decrypt into. A slot that is not committed is given up by the next call.
    ///
    /// `None`: the batch is full, submit it. That a slot longer than [`MAX_SLOT`] is asked for is the
    /// one case in which an empty batch says so.
    #[inline]
    pub fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.slot(len)
    }

    /// Keeps the first `len` bytes of the slot: one whole IP packet, without padding.
    ///
    /// # Panics
    /// If `len` is 0, or more than the slot has.
    #[inline]
    pub fn commit(&mut self, len: usize) {
        self.0.commit(len);
    }

    /// Whether there is no packet in it.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0
    }

    /// Packets in it.
    pub fn packets(&self) -> usize {
        self.0.trains.packets()
    }

    /// Bytes of the packets in it.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// The contents of an [`InboundBatch`].
#[derive(Debug)]
pub(crate) struct InboundBuffer {
    pub(crate) buffer: Box<[u8]>,
    pub(crate) trains: Trains,
    /// The outcome of writing it; the event loop collects it when the batch has come back.
    pub(crate) counters: WriterCounters,
    pub(crate) written: Written,
    coalesce: Coalesce,
    filled: usize,
    bytes: usize,
    slot_len: usize,
    is_full: bool,
}

impl InboundBuffer {
    pub(crate) fn new() -> Self {
        Self {
            // Zeroed memory is mapped when first touched: a quiet tunnel uses a few pages.
            buffer: vec![0; BATCH_BYTES].into_boxed_slice(),
            trains: Trains::new(),
            counters: WriterCounters::default(),
            written: Written::default(),
            coalesce: Coalesce::default(),
            filled: 0,
            bytes: 0,
            slot_len: 0,
            is_full: false,
        }
    }

    /// Makes the batch ready to be filled again.
    pub(crate) fn clear(&mut self, coalesce: Coalesce) {
        self.trains.clear();
        self.written = Written::default();
        self.coalesce = coalesce;
        self.filled = 0;
        self.bytes = 0;
        self.slot_len = 0;
        self.is_full = false;
    }

    #[inline]
    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.slot_len = 0;
        let start = self.slot_start();
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
        let start = self.slot_start();
        let end = start + len;
        let completes_train = self.trains.add(&self.buffer, start, end, self.coalesce);
        self.slot_len = 0;
        self.filled = end;
        self.bytes += len;
        let packets = self.trains.packets();
        self.is_full =
            packets == MAX_BATCH_PACKETS || (completes_train && packets >= ENOUGH_PACKETS);
    }

    #[inline]
    fn slot_start(&self) -> usize {
        (self.filled + VNET_LEN).next_multiple_of(ALIGN)
    }
}

#[cfg(test)]
mod tests;
