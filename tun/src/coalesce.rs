//! Coalescing: decides which packet continues which train, by the rules of the kernel's own GRO
//! (net/ipv4/tcp_offload.c, `tcp_gro_receive`).
//!
//! A train is a run of packets of one flow that one super-packet can carry. Several trains may be open
//! at a time, as flows interleave. A packet continues only the newest train of its flow, so no flow is
//! reordered. Nothing is moved or rewritten here; `write.rs` does that.

use std::ops::Range;

use crate::{
    bounds::MAX_BATCH_PACKETS,
    ip::{self, MAX_PACKET, long, tcp, udp, v4, v6, word},
};

/// The transport protocols to coalesce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesce {
    /// TCP segments with data and no flags but ACK and PSH.
    pub tcp: bool,
    /// UDP datagrams that carry a checksum.
    pub udp: bool,
}

/// Older kernels take 64 segments in one super-packet of UDP (`UDP_MAX_SEGMENTS` before Linux 6.9).
const _: () = assert!(MAX_BATCH_PACKETS <= 64);

/// Ends the list of a train's packets.
const END: u8 = u8::MAX;

/// The packets of a batch, in order of arrival, and the trains that they form.
#[derive(Debug)]
pub(crate) struct Trains {
    packets: [Packet; MAX_BATCH_PACKETS],
    packets_len: usize,
    trains: [Train; MAX_BATCH_PACKETS],
    trains_len: usize,
    /// The index of the first train that may still be continued.
    barrier: usize,
}

/// A packet within the buffer of its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) start: usize,
    pub(crate) end: usize,
    next: u8,
}

/// A train within its batch; the packets are linked by their indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) packets: usize,
    /// The shape of its first packet.
    pub(crate) shape: Shape,
    first: u8,
    last: u8,
    is_open: bool,
    flow: u32,
    next_sequence: u32,
    /// Length of the super-packet, in bytes.
    len: usize,
}

/// The layout of a TCP or UDP packet whose IP header has no options or extensions. Lengths and offsets
/// are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) is_v4: bool,
    pub(crate) is_tcp: bool,
    pub(crate) transport: usize,
    pub(crate) header_len: usize,
    pub(crate) payload_len: usize,
}

impl Trains {
    pub(crate) fn new() -> Self {
        let no_packet = Packet {
            start: 0,
            end: 0,
            next: END,
        };
        let no_train = Train {
            packets: 0,
            shape: Shape::default(),
            first: END,
            last: END,
            is_open: false,
            flow: 0,
            next_sequence: 0,
            len: 0,
        };
        Self {
            packets: [no_packet; MAX_BATCH_PACKETS],
            packets_len: 0,
            trains: [no_train; MAX_BATCH_PACKETS],
            trains_len: 0,
            barrier: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.packets_len = 0;
        self.trains_len = 0;
        self.barrier = 0;
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets_len
    }

    /// The trains, in the order in which they were opened.
    pub(crate) fn trains(&self) -> &[Train] {
        &self.trains[..self.trains_len]
    }

    /// The packets of a train, in order.
    pub(crate) fn packets_of(&self, train: &Train) -> impl Iterator<Item = Packet> {
        let mut next = train.first;
        std::iter::from_fn(move || {
            let packet = *self.packets.get(usize::from(next))?;
            next = packet.next;
            Some(packet)
        })
    }

    /// Adds the packet in `buffer[start..end]`; returns whether it completes a train of several packets.
    ///
    /// The caller ensures room: fewer than [`MAX_BATCH_PACKETS`] in [`Trains::packets`].
    #[inline]
    pub(crate) fn add(
        &mut self,
        buffer: &[u8],
        start: usize,
        end: usize,
        enabled: Coalesce,
    ) -> bool {
        let index = self.packets_len;
        self.packets[index] = Packet {
            start,
            end,
            next: END,
        };
        self.packets_len += 1;

        let packet = &buffer[start..end];
        let is_on = enabled.tcp || enabled.udp;
        let Some(shape) = is_on.then(|| Shape::of(packet)).flatten() else {
            // It may belong to any flow (a fragment, say), so no flow may be continued past it.
            self.open(index, packet, Shape::default(), 0, false);
            self.barrier = self.trains_len;
            return false;
        };
        let flow = shape.flow(packet);
        let can_join = shape.can_join(packet, enabled);
        if let Some(train) = self.newest_of(buffer, packet, shape, flow) {
            let Self {
                packets, trains, ..
            } = self;
            let train = &mut trains[train];
            let first = &buffer[packets[usize::from(train.first)].start..];
            if can_join && train.is_open && train.is_continued_by(first, packet, shape) {
                packets[usize::from(train.last)].next = index as u8;
                train.last = index as u8;
                train.append(packet, shape);
                return !train.is_open;
            }
        }
        self.open(index, packet, shape, flow, can_join);
        false
    }

    fn open(&mut self, index: usize, packet: &[u8], shape: Shape, flow: u32, can_join: bool) {
        let mut train = Train {
            packets: 0,
            shape,
            first: index as u8,
            last: index as u8,
            is_open: can_join,
            flow,
            next_sequence: 0,
            len: shape.header_len,
        };
        if can_join && shape.is_tcp {
            train.next_sequence = long(packet, shape.transport + tcp::SEQUENCE);
        }
        train.append(packet, shape);
        self.trains[self.trains_len] = train;
        self.trains_len += 1;
    }

    #[inline]
    fn newest_of(&self, buffer: &[u8], packet: &[u8], shape: Shape, flow: u32) -> Option<usize> {
        (self.barrier..self.trains_len).rev().find(|train| {
            let train = &self.trains[*train];
            let first = self.packets[usize::from(train.first)];
            train.flow == flow
                && train
                    .shape
                    .is_same_flow(&buffer[first.start..first.end], shape, packet)
        })
    }
}

impl Train {
    #[inline]
    fn append(&mut self, packet: &[u8], shape: Shape) {
        self.packets += 1;
        self.len += shape.payload_len;
        self.next_sequence = self.next_sequence.wrapping_add(shape.payload_len as u32);
        let is_short = shape.payload_len < self.shape.payload_len;
        let is_pushed =
            shape.is_tcp && self.is_open && packet[shape.transport + tcp::FLAGS] & tcp::PSH != 0;
        let is_full = self.len + self.shape.payload_len > MAX_PACKET;
        self.is_open &= !is_short && !is_pushed && !is_full;
    }

    /// Returns whether `packet` may follow in this train of the same flow, whose first packet is `first`.
    #[inline]
    fn is_continued_by(&self, first: &[u8], packet: &[u8], shape: Shape) -> bool {
        let is_same = |range: Range<usize>| first[range.clone()] == packet[range];
        let fits = shape.header_len == self.shape.header_len
            && shape.payload_len <= self.shape.payload_len
            && self.len + shape.payload_len <= MAX_PACKET;
        let network_continues = if shape.is_v4 {
            // The identification is meaningless where fragmentation is forbidden (RFC 6864 §4.1).
            let is_atomic = word(packet, v4::FRAGMENT) & v4::DONT_FRAGMENT != 0;
            let expected = word(first, v4::IDENTIFICATION).wrapping_add(self.packets as u16);
            is_same(0..2)
                && is_same(6..10)
                && (is_atomic || word(packet, v4::IDENTIFICATION) == expected)
        } else {
            is_same(0..4) && is_same(6..8)
        };
        if !fits || !network_continues || !shape.is_tcp {
            return fits && network_continues;
        }
        let at = shape.transport;
        let is_next = long(packet, at + tcp::SEQUENCE) == self.next_sequence;
        // Compare the data offset as well, and the bits beside it: flags, or reserved for such.
        let is_same_ack = is_same(at + 8..at + 13);
        let is_same_window = is_same(at + 14..at + 16);
        let are_options_same = is_same(at + 18..shape.header_len);
        is_next && is_same_ack && is_same_window && are_options_same
    }
}

impl Shape {
    /// Parses a packet; `None` if no rule here applies to it, so that its flow is unknown.
    #[inline]
    fn of(packet: &[u8]) -> Option<Self> {
        let (is_v4, transport, protocol) = match *packet.first()? {
            0x45 if packet.len() >= v4::HEADER_LEN => {
                let is_whole = usize::from(word(packet, v4::TOTAL_LEN)) == packet.len()
                    && word(packet, v4::FRAGMENT) & v4::IS_FRAGMENT == 0;
                is_whole.then_some((true, v4::HEADER_LEN, packet[v4::PROTOCOL]))?
            }
            0x60..=0x6f if packet.len() >= v6::HEADER_LEN => {
                let len = usize::from(word(packet, v6::PAYLOAD_LEN)) + v6::HEADER_LEN;
                (len == packet.len()).then_some((false, v6::HEADER_LEN, packet[v6::NEXT_HEADER]))?
            }
            _ => return None,
        };
        let behind = packet.len() - transport;
        let (is_tcp, transport_len) = match protocol {
            ip::TCP if behind >= tcp::HEADER_LEN => {
                let len = usize::from(packet[transport + tcp::DATA_OFFSET] >> 4) * 4;
                ((tcp::HEADER_LEN..=behind).contains(&len)).then_some((true, len))?
            }
            ip::UDP if behind >= udp::HEADER_LEN => {
                let len = usize::from(word(packet, transport + udp::LENGTH));
                (len == behind).then_some((false, udp::HEADER_LEN))?
            }
            _ => return None,
        };
        Some(Self {
            is_v4,
            is_tcp,
            transport,
            header_len: transport + transport_len,
            payload_len: behind - transport_len,
        })
    }

    /// Returns whether the packet may be part of a train of several.
    #[inline]
    fn can_join(&self, packet: &[u8], enabled: Coalesce) -> bool {
        let is_plain = if self.is_tcp {
            enabled.tcp && packet[self.transport + tcp::FLAGS] & !tcp::PSH == tcp::ACK
        } else {
            enabled.udp && word(packet, self.transport + udp::CHECKSUM) != 0
        };
        is_plain && self.payload_len > 0
    }

    /// A hash of addresses and ports; equal flows give equal values.
    #[inline]
    fn flow(&self, packet: &[u8]) -> u32 {
        let ports = long(packet, self.transport);
        let (source, destination) = if self.is_v4 { (12, 16) } else { (20, 36) };
        ports ^ long(packet, source).rotate_left(7) ^ long(packet, destination).rotate_left(19)
    }

    /// Compares addresses and ports, which are adjacent as there are no options. The ranges are constant,
    /// so that the comparison is inline code.
    #[inline]
    fn is_same_flow(&self, packet: &[u8], other: Self, other_packet: &[u8]) -> bool {
        const V4: Range<usize> = v4::ADDRESSES.start..v4::ADDRESSES.end + 4;
        const V6: Range<usize> = v6::ADDRESSES.start..v6::ADDRESSES.end + 4;
        let is_same_kind = self.is_v4 == other.is_v4 && self.is_tcp == other.is_tcp;
        is_same_kind
            && if self.is_v4 {
                packet[V4] == other_packet[V4]
            } else {
                packet[V6] == other_packet[V6]
            }
    }
}

#[cfg(test)]
mod tests;
