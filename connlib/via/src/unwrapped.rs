//! Inbound: packets of the outer tunnel become datagrams of the inner one.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use convoy_packet::{
    datagram::UDP_HEADER,
    packet::{Fragment, LONGEST_PACKET, Packet, UDP},
    vnet::VnetHeader,
};
use convoy_proto::{Datagram, PacketSink, counters::DropReason};

use crate::wrapped::Sender;

/// Most packets that wait for the inner tunnel.
const MAX_PACKETS: usize = 256;
/// Most bytes of these packets: several of the longest.
pub(crate) const MAX_BYTES: usize = 4 * LONGEST_PACKET;

/// Packets from the outer tunnel, in order, then the datagrams in them.
#[derive(Debug, Default)]
pub(crate) struct Unwrapped {
    bytes: Vec<u8>,
    /// Slots that are reserved.
    reserved: Vec<Range<usize>>,
    /// Packets that were delivered, and not looked at yet.
    packets: VecDeque<Range<usize>>,
}

/// The meaning of a packet from the outer tunnel.
pub(crate) enum Meaning<'a> {
    /// A datagram for the inner tunnel.
    Datagram(Datagram<'a>),
    /// A part of a packet.
    Fragment(Packet<'a>, Fragment),
    /// An ICMP message.
    Icmp(Packet<'a>),
    /// Nothing that is for it.
    Dropped(DropReason),
}

impl Unwrapped {
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Drops everything; returns the number of packets.
    pub(crate) fn clear(&mut self) -> usize {
        let dropped = self.packets.len();
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            ..Self::default()
        };
        self.bytes.clear();
        dropped
    }

    /// The packets that wait, the oldest first.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.packets.iter().map(|at| &self.bytes[at.clone()])
    }

    /// Forgets the oldest `count` packets.
    pub(crate) fn advance(&mut self, count: usize) {
        self.packets.drain(..count.min(self.packets.len()));
        if self.packets.is_empty() && self.reserved.is_empty() {
            self.bytes.clear();
        }
    }
}

/// Reads a packet that is to be for `own`.
pub(crate) fn read<'a>(bytes: &'a [u8], own: &Sender) -> Meaning<'a> {
    let Ok(packet) = Packet::parse(VnetHeader::default(), bytes) else {
        return Meaning::Dropped(DropReason::InboundMalformed);
    };
    if own.address(packet.source.is_ipv4()) != Some(packet.destination) {
        return Meaning::Dropped(DropReason::InboundViaForeign);
    }
    if let Some(fragment) = packet.fragment {
        return Meaning::Fragment(packet, fragment);
    }
    match packet.protocol {
        UDP => read_datagram(packet.payload(), packet.source, packet.class() & 0b11, own),
        _ => Meaning::Icmp(packet),
    }
}

/// Reads a UDP datagram, header included.
pub(crate) fn read_datagram<'a>(
    bytes: &'a [u8],
    source: IpAddr,
    ecn: u8,
    own: &Sender,
) -> Meaning<'a> {
    let Some((header, payload)) = bytes.split_first_chunk::<UDP_HEADER>() else {
        return Meaning::Dropped(DropReason::InboundMalformed);
    };
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let length = usize::from(half(4)).checked_sub(UDP_HEADER);
    let Some(payload) = length.and_then(|length| payload.get(..length)) else {
        return Meaning::Dropped(DropReason::InboundMalformed);
    };
    if half(2) != own.port {
        return Meaning::Dropped(DropReason::InboundViaForeign);
    }
    Meaning::Datagram(Datagram {
        bytes: payload,
        from: SocketAddr::new(source, half(0)),
        arrival: None,
        ecn,
    })
}

impl PacketSink for Unwrapped {
    fn reserve(&mut self, len: usize) -> bool {
        let start = self.bytes.len();
        let has_room =
            self.packets.len() + self.reserved.len() < MAX_PACKETS && start + len <= MAX_BYTES;
        if has_room {
            self.bytes.resize(start + len, 0);
            self.reserved.push(start..start + len);
        }
        has_room
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let first = self
            .reserved
            .first()
            .map_or(self.bytes.len(), |it| it.start);
        let mut rest = &mut self.bytes[first..];
        self.reserved.iter().map(move |at| {
            let (slot, behind) = std::mem::take(&mut rest).split_at_mut(at.len());
            rest = behind;
            slot
        })
    }

    fn slot(&mut self, n: usize) -> Option<&mut [u8]> {
        let at = self.reserved.get(n)?.clone();
        self.bytes.get_mut(at)
    }

    fn commit(&mut self, n: usize, len: usize) {
        if let Some(at) = self.reserved.get(n) {
            self.packets
                .push_back(at.start..at.start + len.min(at.len()));
        }
    }

    fn release(&mut self) {
        self.reserved.clear();
        if self.packets.is_empty() {
            self.bytes.clear();
        }
    }
}
