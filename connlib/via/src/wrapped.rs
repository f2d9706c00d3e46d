//! Outbound: datagrams of the inner tunnel become packets of the outer one.

use std::net::{IpAddr, SocketAddr};

use convoy_packet::{
    datagram::UDP_HEADER,
    packet::{
        IPV6_HEADER, LONGEST_PACKET, UDP, ip_header_len, seal_ipv4, transport_sum, write_ip_header,
    },
};
use convoy_proto::{DatagramSink, Destination, PacketSource, PaddablePacket, SinkFull};

/// Most packets that wait for the outer tunnel.
const MAX_PACKETS: usize = 64;
/// Most bytes of these packets; there is always room for 16 of any length, which are sealed together.
pub(crate) const MAX_BYTES: usize = 17 * SLOT;
/// Bytes of the longest packet with its padding.
const SLOT: usize = LONGEST_PACKET + PADDING;
/// Most bytes that are added to a packet.
const PADDING: usize = 15;
/// "Don't fragment", in the high byte of IPv4's flags (RFC 791).
const DONT_FRAGMENT: u8 = 0x40;

/// The sender of datagrams inside the outer tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Addresses of IPv4 and IPv6.
    pub(crate) addresses: [Option<IpAddr>; 2],
    pub(crate) port: u16,
}

/// Packets on their way from the inner tunnel to the outer one, in order.
#[derive(Debug, Default)]
pub(crate) struct Wrapped {
    pub(crate) sender: Sender,
    bytes: Vec<u8>,
    /// The start and the length of each packet.
    packets: Vec<(usize, usize)>,
    /// Packets that the outer tunnel has taken.
    taken: usize,
    /// Datagrams for which the outer tunnel has no address, since [`Wrapped::take_homeless`].
    homeless: u64,
}

impl Sender {
    pub(crate) fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        self.addresses[usize::from(!is_ipv4)]
    }
}

impl Wrapped {
    /// The number of packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.packets.len() - self.taken
    }

    /// Counts datagrams that were dropped for want of an address, since the last call.
    pub(crate) fn take_homeless(&mut self) -> u64 {
        std::mem::take(&mut self.homeless)
    }

    /// Drops everything; returns the number of packets.
    pub(crate) fn clear(&mut self) -> usize {
        let dropped = self.len();
        self.bytes.clear();
        self.packets.clear();
        self.taken = 0;
        dropped
    }

    /// A sink that takes no more than the outer tunnel's sink has room for.
    pub(crate) fn within(&mut self, room: usize) -> Within<'_> {
        // An outer tunnel whose sink is full does not ask for the packet after the last.
        if self.len() == 0 {
            self.clear();
        }
        let room = room.saturating_sub(self.len());
        Within {
            wrapped: self,
            room,
        }
    }

    fn room(&self) -> usize {
        let by_bytes = (MAX_BYTES - self.bytes.len()) / SLOT;
        by_bytes.min(MAX_PACKETS - self.packets.len())
    }

    /// Appends a packet with this datagram from `source`, an address of the destination's family.
    fn push(&mut self, source: IpAddr, destination: &Destination, datagram: &[u8]) {
        let to = destination.to;
        let (header, length) = (ip_header_len(source), UDP_HEADER + datagram.len());
        let start = self.bytes.len();
        // Behind the header at first, so that only what no copy writes is zeroed.
        self.bytes.resize(start + header, 0);
        let (from, to) = (SocketAddr::new(source, self.sender.port), to);
        self.bytes.extend(from.port().to_be_bytes());
        self.bytes.extend(to.port().to_be_bytes());
        self.bytes.extend((length as u16).to_be_bytes());
        self.bytes.extend([0, 0]);
        self.bytes.extend_from_slice(datagram);
        let packet = &mut self.bytes[start..];
        write_ip_header(packet, source, to.ip(), UDP, length);
        let ecn = destination.ecn & 0b11;
        match source {
            IpAddr::V4(_) => {
                packet[1] |= ecn;
                packet[6] |= DONT_FRAGMENT;
                seal_ipv4(packet);
            }
            IpAddr::V6(_) => packet[1] |= ecn << 4,
        }
        // A sum of zero means that there is none (RFC 768).
        let sum = match !transport_sum(source, to.ip(), UDP, &packet[header..]) {
            0 => 0xffff,
            sum => sum,
        };
        packet[header + 6..][..2].copy_from_slice(&sum.to_be_bytes());
        let length = packet.len();
        self.bytes.resize(start + length + PADDING, 0);
        self.packets.push((start, length));
    }
}

/// See [`Wrapped::within`].
pub(crate) struct Within<'a> {
    wrapped: &'a mut Wrapped,
    /// Datagrams that the outer tunnel's sink has room for.
    room: usize,
}

impl DatagramSink for Within<'_> {
    fn room(&self) -> usize {
        self.room.min(self.wrapped.room())
    }

    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        let is_too_long = IPV6_HEADER + UDP_HEADER + datagram.len() > LONGEST_PACKET;
        if self.room() == 0 || is_too_long {
            return Err(SinkFull);
        }
        let sender = self.wrapped.sender;
        let Some(source) = sender.address(destination.to.is_ipv4()) else {
            self.wrapped.homeless += 1;
            return Ok(());
        };
        self.wrapped.push(source, destination, datagram);
        self.room -= 1;
        Ok(())
    }
}

/// A packet in the buffer, behind which there is room for padding.
pub(crate) struct WrappedPacket<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl PaddablePacket for WrappedPacket<'_> {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }
}

impl PacketSource for Wrapped {
    type Packet<'a> = WrappedPacket<'a>;

    fn next(&mut self) -> Option<WrappedPacket<'_>> {
        let Some(&(start, length)) = self.packets.get(self.taken) else {
            self.clear();
            return None;
        };
        self.taken += 1;
        Some(WrappedPacket {
            bytes: &mut self.bytes[start..start + length + PADDING],
            length,
        })
    }
}
