//! A batch of outbound packets: reads from the TUN, which are cut and handed out one by one.

use convoy_packet::{
    checksum::sum,
    vnet::{VNET_LEN, VnetHeader},
};

use crate::{
    bounds::{BATCH_BYTES, MAX_BATCH_PACKETS},
    cut::{Cutter, Framing, unframe},
    ip::MAX_PACKET,
    pool::Lease,
};

/// Most zeros, in bytes, that [`OutboundPacket::padded`] appends to a packet.
pub(crate) const MAX_PADDING: usize = 15;
/// Packets begin on a cache line, and never within the padding of the one before.
const ALIGN: usize = 64;
/// Payload sums that the reader thread computes per batch. Ordinary traffic needs about 100, a batch that
/// ends with a super-packet of the smallest TCP segments 1,870. For more, the event loop sums itself.
const MAX_SUMS: usize = 2048;

/// Packets read from the TUN. Super-packets are kept whole until [`OutboundBatch::next`] cuts them.
///
/// A batch ends where another read as large as the last would exceed the limit of packets. A super-packet
/// that exceeds it nevertheless is included whole. The caller may take packets out in several steps.
///
/// Dropping the batch returns its buffer to the reader thread. A thread that has run out of buffers waits
/// until half of them are back.
#[derive(Debug)]
pub struct OutboundBatch(pub(crate) Lease<OutboundBuffer>);

impl OutboundBatch {
    /// Packets in the batch, handed out or not.
    pub fn packets(&self) -> usize {
        self.0.packets
    }

    /// Packets not yet handed out.
    pub fn remaining(&self) -> usize {
        self.0.packets - self.0.handed_out
    }

    /// The number of packets of each read, in order.
    pub fn packets_per_read(&self) -> impl Iterator<Item = usize> {
        self.0.entries[..self.0.len]
            .iter()
            .map(|entry| entry.packets)
    }

    /// System calls made to fill the batch.
    pub fn calls(&self) -> ReadCalls {
        self.0.calls
    }

    /// Reads discarded because their virtio header contradicts the packet, or could not express its kind.
    pub fn malformed(&self) -> u32 {
        self.0.malformed
    }

    /// Returns whether the event loop itself has read it, as traffic was sparse.
    pub fn is_sparse(&self) -> bool {
        self.0.is_sparse
    }

    /// Cuts the next packet and hands it out.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "each packet borrows the batch"
    )]
    pub fn next(&mut self) -> Option<OutboundPacket<'_>> {
        self.0.next()
    }
}

/// System calls made to read a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCalls {
    /// `read(2)`, including those that found nothing.
    pub reads: u32,
    /// `poll(2)`.
    pub waits: u32,
}

/// One IP packet, with its checksums complete.
#[derive(Debug)]
pub struct OutboundPacket<'a> {
    buffer: &'a mut [u8],
    overwritten: &'a mut Overwritten,
    start: usize,
    end: usize,
}

impl OutboundPacket<'_> {
    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The packet, padded with zeros to `len` bytes: at most 15 more than its length.
    ///
    /// # Panics
    /// If `len` is not in that range.
    #[inline]
    pub fn padded(&mut self, len: usize) -> &[u8] {
        let padding = self.end..self.start + len;
        self.overwritten
            .save(&self.buffer[padding.clone()], self.end);
        self.buffer[padding.clone()].fill(0);
        &self.buffer[self.start..padding.end]
    }
}

/// Saves the bytes that padding overwrites: they may be payload of the next segment.
#[derive(Debug, Default)]
struct Overwritten {
    bytes: [u8; MAX_PADDING],
    len: usize,
    at: usize,
}

impl Overwritten {
    #[inline]
    fn save(&mut self, bytes: &[u8], at: usize) {
        // If the same packet is padded again, keep the bytes from before its first padding.
        if bytes.len() > self.len {
            self.bytes[self.len..bytes.len()].copy_from_slice(&bytes[self.len..]);
            self.len = bytes.len();
            self.at = at;
        }
    }

    #[inline]
    fn restore(&mut self, buffer: &mut [u8]) {
        if self.len > 0 {
            buffer[self.at..self.at + self.len].copy_from_slice(&self.bytes[..self.len]);
            self.len = 0;
        }
    }
}

/// One read within a batch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    end: usize,
    packets: usize,
    /// The index of its segments' first payload sum.
    first_sum: usize,
    /// Set for a super-packet.
    cutter: Option<Cutter>,
}

const NO_ENTRY: Entry = Entry {
    start: 0,
    end: 0,
    packets: 0,
    first_sum: 0,
    cutter: None,
};

/// The contents of an [`OutboundBatch`].
#[derive(Debug)]
pub(crate) struct OutboundBuffer {
    buffer: Box<[u8]>,
    filled: usize,
    entries: [Entry; MAX_BATCH_PACKETS],
    len: usize,
    packets: usize,
    sums: [u16; MAX_SUMS],
    sums_len: usize,
    malformed: u32,
    pub(crate) calls: ReadCalls,
    /// With this batch, the reader thread lends the device to the event loop.
    pub(crate) lends_device: bool,
    /// The event loop has read it itself.
    pub(crate) is_sparse: bool,
    /// The next entry to hand out, and the next segment within it.
    entry: usize,
    segment: usize,
    handed_out: usize,
    overwritten: Overwritten,
}

impl OutboundBuffer {
    pub(crate) fn new() -> Self {
        Self {
            // The kernel maps zeroed memory on first touch: a quiet tunnel uses a few pages.
            buffer: vec![0; BATCH_BYTES].into_boxed_slice(),
            filled: 0,
            entries: [NO_ENTRY; MAX_BATCH_PACKETS],
            len: 0,
            packets: 0,
            sums: [0; MAX_SUMS],
            sums_len: 0,
            malformed: 0,
            calls: ReadCalls::default(),
            lends_device: false,
            is_sparse: false,
            entry: 0,
            segment: 0,
            handed_out: 0,
            overwritten: Overwritten::default(),
        }
    }

    /// Empties the batch, to be filled again.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
        self.len = 0;
        self.packets = 0;
        self.sums_len = 0;
        self.malformed = 0;
        self.calls = ReadCalls::default();
        self.lends_device = false;
        self.is_sparse = false;
        self.entry = 0;
        self.segment = 0;
        self.handed_out = 0;
        self.overwritten.len = 0;
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Returns whether there is nothing to report: neither a packet nor a malformed read.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0 && self.malformed == 0
    }

    /// Room for one read of any length, after `framing` bytes of virtio header; `None` if it is full.
    pub(crate) fn room(&mut self, framing: usize) -> Option<&mut [u8]> {
        let start = self.next_start();
        let has_room = start + MAX_PACKET + MAX_PADDING <= self.buffer.len();
        if !has_room || self.len == MAX_BATCH_PACKETS {
            return None;
        }
        Some(&mut self.buffer[start - framing..start + MAX_PACKET])
    }

    /// Accepts a read of `read` bytes into [`OutboundBuffer::room`], `framing` of them virtio header.
    pub(crate) fn accept(&mut self, read: usize, framing: usize) {
        let start = self.next_start();
        let end = start - framing + read;
        let header = match self.buffer[start - framing..].first_chunk() {
            Some(bytes) if framing > 0 => VnetHeader::parse(*bytes),
            _ => VnetHeader::default(),
        };
        let unframed = match self.buffer.get_mut(start..end) {
            Some(packet) => unframe(header, packet),
            None => Err(crate::cut::Malformed),
        };
        let Ok(unframed) = unframed else {
            return self.refuse();
        };
        let mut entry = Entry {
            start,
            end,
            packets: 1,
            ..NO_ENTRY
        };
        if let Framing::Super(shape) = unframed {
            let packet = &self.buffer[start..end];
            entry.packets = shape.segments();
            entry.cutter = Some(Cutter::new(shape, packet));
            entry.first_sum = self.sums_len;
            // Sum on the reader thread, to relieve the event loop.
            for (index, slot) in self.sums[self.sums_len..]
                .iter_mut()
                .take(entry.packets)
                .enumerate()
            {
                *slot = sum(&packet[shape.payload(index)]);
            }
            self.sums_len = (self.sums_len + entry.packets).min(MAX_SUMS);
        }
        self.entries[self.len] = entry;
        self.len += 1;
        self.packets += entry.packets;
        self.filled = end;
    }

    /// Counts a read that yielded no packet.
    pub(crate) fn refuse(&mut self) {
        self.malformed += 1;
    }

    fn next_start(&self) -> usize {
        (self.filled + MAX_PADDING + VNET_LEN).next_multiple_of(ALIGN)
    }

    #[inline]
    fn next(&mut self) -> Option<OutboundPacket<'_>> {
        let entry = self.entries[..self.len].get(self.entry)?;
        self.overwritten.restore(&mut self.buffer);
        let (mut start, mut end) = (entry.start, entry.end);
        if let Some(cutter) = &entry.cutter {
            let packet = &mut self.buffer[start..end];
            let sum = match self.sums.get(entry.first_sum + self.segment) {
                Some(sum) => *sum,
                None => sum(&packet[cutter.payload(self.segment)]),
            };
            let segment = cutter.cut(packet, self.segment, sum);
            (start, end) = (entry.start + segment.start, entry.start + segment.end);
        }
        self.segment += 1;
        if self.segment == entry.packets {
            self.entry += 1;
            self.segment = 0;
        }
        self.handed_out += 1;
        Some(OutboundPacket {
            buffer: &mut self.buffer,
            overwritten: &mut self.overwritten,
            start,
            end,
        })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
