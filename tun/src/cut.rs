//! Cutting a super-packet into segments, in place, as the kernel's own segmentation would
//! (net/ipv4/tcp_offload.c, net/ipv4/udp_offload.c).
//!
//! ```text
//!  ┌────────┬───────────┬───────────┬─────┐   the super-packet
//!  │ header │ payload 0 │ payload 1 │ …   │
//!  └────────┴───────────┴───────────┴─────┘
//!  ╞═ segment 0 ════════╡                     the header, corrected
//!              ┌────────┬───────────┐
//!              │ header │ payload 1 │         segment 1: its header overwrites the end of segment 0
//!              └────────┴───────────┘
//! ```

use std::ops::Range;

use convoy_packet::{
    checksum::{fold, sum},
    vnet::{
        DATA_VALID, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VnetHeader,
    },
};

use crate::ip::{self, MAX_PACKET, long, set_long, set_word, tcp, udp, v4, v6, word};

/// A read that no correct kernel returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the virtio header does not fit the packet behind it")]
pub(crate) struct Malformed;

/// The kind of packet that a virtio header describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One packet; its transport checksum is complete.
    Whole,
    Super(SuperPacket),
}

/// Checks `packet` against its virtio header, and completes the checksum of a single packet.
pub(crate) fn unframe(header: VnetHeader, packet: &mut [u8]) -> Result<Framing, Malformed> {
    if packet.len() > MAX_PACKET {
        return Err(Malformed);
    }
    if header.gso_type & !GSO_ECN != GSO_NONE {
        let is_verified = header.flags & (NEEDS_CSUM | DATA_VALID) == DATA_VALID;
        let header = match is_verified {
            true => seed_checksum(header, packet).ok_or(Malformed)?,
            false => header,
        };
        return SuperPacket::parse(header, packet).map(Framing::Super);
    }
    if packet.is_empty() {
        return Err(Malformed);
    }
    if header.flags & NEEDS_CSUM != 0 {
        let start = usize::from(header.csum_start);
        let field = start + usize::from(header.csum_offset);
        if field + 2 > packet.len() {
            return Err(Malformed);
        }
        let total = sum(&packet[start..]);
        set_word(packet, field, never_zero(!total));
    }
    Ok(Framing::Whole)
}

/// Replaces the verified checksum of a super-packet by the sum of its pseudo-header; returns the virtio
/// header that says so. The old checksum is no help: it may be that of the first segment alone.
#[cold]
fn seed_checksum(header: VnetHeader, packet: &mut [u8]) -> Option<VnetHeader> {
    let (transport, protocol, addresses) = match packet.first()? >> 4 {
        4 if packet.len() >= v4::HEADER_LEN => {
            let header_len = usize::from(packet[0] & 0x0f) * 4;
            (header_len, packet[v4::PROTOCOL], v4::ADDRESSES)
        }
        6 if packet.len() >= v6::HEADER_LEN => {
            let (at, protocol) = transport_v6(packet)?;
            (at, protocol, v6::ADDRESSES)
        }
        _ => return None,
    };
    let offset = match protocol {
        ip::TCP => tcp::CHECKSUM,
        ip::UDP => udp::CHECKSUM,
        _ => return None,
    };
    let field = transport + offset;
    if field + 2 > packet.len() {
        return None;
    }
    let len = (packet.len() - transport) as u32;
    let pseudo = u32::from(sum(&packet[addresses])) + u32::from(protocol) + len;
    set_word(packet, field, fold(pseudo));
    Some(VnetHeader {
        flags: NEEDS_CSUM,
        csum_start: transport as u16,
        csum_offset: offset as u16,
        ..header
    })
}

/// The layout of a super-packet: one header, and behind it the payload of several segments. Lengths and
/// offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SuperPacket {
    is_v4: bool,
    is_tcp: bool,
    /// Where the transport header begins.
    transport: usize,
    header_len: usize,
    /// Payload length of each segment but the last, which may be shorter.
    segment_len: usize,
    len: usize,
}

impl SuperPacket {
    /// Ignores `hdr_len`: the kernel's value is not always the length of the headers.
    fn parse(header: VnetHeader, packet: &[u8]) -> Result<Self, Malformed> {
        let len = packet.len();
        let transport = usize::from(header.csum_start);
        let segment_len = usize::from(header.gso_size);
        if header.flags & NEEDS_CSUM == 0 || segment_len == 0 || len < v4::HEADER_LEN {
            return Err(Malformed);
        }
        let is_v4 = packet[0] >> 4 == 4;
        let is_tcp = match (header.gso_type & !GSO_ECN, packet[0] >> 4) {
            (GSO_TCPV4, 4) | (GSO_TCPV6, 6) => true,
            (GSO_UDP_L4, 4 | 6) => false,
            _ => return Err(Malformed),
        };
        let protocol = if is_tcp { ip::TCP } else { ip::UDP };
        let network_fits = if is_v4 {
            fits_v4(packet, transport, protocol)
        } else {
            fits_v6(packet, transport, protocol)
        };
        let (min, checksum) = if is_tcp {
            (tcp::HEADER_LEN, tcp::CHECKSUM)
        } else {
            (udp::HEADER_LEN, udp::CHECKSUM)
        };
        if !network_fits || transport + min > len || usize::from(header.csum_offset) != checksum {
            return Err(Malformed);
        }
        let transport_len = if is_tcp {
            usize::from(packet[transport + tcp::DATA_OFFSET] >> 4) * 4
        } else {
            udp::HEADER_LEN
        };
        let header_len = transport + transport_len;
        if transport_len < min || header_len > len {
            return Err(Malformed);
        }
        Ok(Self {
            is_v4,
            is_tcp,
            transport,
            header_len,
            segment_len,
            len,
        })
    }

    /// The number of segments, at least one.
    pub(crate) fn segments(&self) -> usize {
        (self.len - self.header_len)
            .div_ceil(self.segment_len)
            .max(1)
    }

    /// The range of the payload of segment `index` within the packet.
    #[inline]
    pub(crate) fn payload(&self, index: usize) -> Range<usize> {
        let start = self.header_len + index * self.segment_len;
        start..(start + self.segment_len).min(self.len)
    }
}

fn fits_v4(packet: &[u8], transport: usize, protocol: u8) -> bool {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let is_fragment = word(packet, v4::FRAGMENT) & v4::IS_FRAGMENT != 0;
    header_len >= v4::HEADER_LEN
        && header_len == transport
        && packet[v4::PROTOCOL] == protocol
        && usize::from(word(packet, v4::TOTAL_LEN)) == packet.len()
        && !is_fragment
}

/// Allows those extension headers before the transport header that the kernel's segmentation allows.
fn fits_v6(packet: &[u8], transport: usize, protocol: u8) -> bool {
    let is_whole = packet.len() >= v6::HEADER_LEN
        && usize::from(word(packet, v6::PAYLOAD_LEN)) + v6::HEADER_LEN == packet.len();
    is_whole && transport_v6(packet) == Some((transport, protocol))
}

/// Returns the place and the protocol of the header behind the extension headers.
fn transport_v6(packet: &[u8]) -> Option<(usize, u8)> {
    let (mut at, mut next) = (v6::HEADER_LEN, packet[v6::NEXT_HEADER]);
    while v6::EXTENSIONS.contains(&next) {
        let [following, units] = *packet.get(at..)?.first_chunk()?;
        next = following;
        at += (usize::from(units) + 1) * 8;
    }
    Some((at, next))
}

/// Cuts one super-packet; holds everything that its segments have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutter {
    shape: SuperPacket,
    /// The sum of the IPv4 header without total length, identification and checksum.
    network_sum: u32,
    /// The sum of pseudo-header and transport header without the words that differ between segments.
    transport_sum: u32,
    identification: u16,
    sequence: u32,
    /// Data offset and flags.
    flags: u16,
}

impl Cutter {
    /// Reads the header of `packet`, from which nothing has been cut yet.
    pub(crate) fn new(shape: SuperPacket, packet: &[u8]) -> Self {
        let without = |at| u32::from(!word(packet, at));
        let at = shape.transport;
        let mut cutter = Self {
            shape,
            network_sum: 0,
            // The checksum field holds the sum of the super-packet's pseudo-header. It is right even if a
            // routing header makes the final destination differ from the IP header's.
            transport_sum: u32::from(sum(&packet[at..shape.header_len]))
                + u32::from(!((shape.len - at) as u16)),
            identification: 0,
            sequence: 0,
            flags: 0,
        };
        if shape.is_v4 {
            cutter.identification = word(packet, v4::IDENTIFICATION);
            cutter.network_sum = u32::from(sum(&packet[..at]))
                + without(v4::TOTAL_LEN)
                + without(v4::IDENTIFICATION)
                + without(v4::CHECKSUM);
        }
        if shape.is_tcp {
            cutter.sequence = long(packet, at + tcp::SEQUENCE);
            cutter.flags = word(packet, at + tcp::DATA_OFFSET);
            cutter.transport_sum += without(at + tcp::SEQUENCE)
                + without(at + tcp::SEQUENCE + 2)
                + without(at + tcp::DATA_OFFSET);
        } else {
            cutter.transport_sum += without(at + udp::LENGTH);
        }
        cutter
    }

    /// The range of the payload of segment `index` within the packet.
    #[inline]
    pub(crate) fn payload(&self, index: usize) -> Range<usize> {
        self.shape.payload(index)
    }

    /// Writes the header of segment `index` before its payload; returns the segment's range in `packet`.
    /// `payload_sum` is the sum of its payload.
    ///
    /// Cut segments in order: each copies its header from the one before and overwrites that one's end.
    #[inline]
    pub(crate) fn cut(&self, packet: &mut [u8], index: usize, payload_sum: u16) -> Range<usize> {
        let shape = &self.shape;
        let payload = shape.payload(index);
        let start = payload.start - shape.header_len;
        if index > 0 {
            let previous = start - shape.segment_len;
            packet.copy_within(previous..previous + shape.header_len, start);
        }
        let segment = &mut packet[start..payload.end];
        self.correct_network(segment, index);
        if shape.is_tcp {
            self.correct_tcp(segment, index, payload_sum, payload.end == shape.len);
        } else {
            self.correct_udp(segment, payload_sum);
        }
        start..payload.end
    }

    #[inline]
    fn correct_network(&self, segment: &mut [u8], index: usize) {
        let len = segment.len() as u16;
        if !self.shape.is_v4 {
            return set_word(segment, v6::PAYLOAD_LEN, len - v6::HEADER_LEN as u16);
        }
        let identification = self.identification.wrapping_add(index as u16);
        let total = self.network_sum + u32::from(len) + u32::from(identification);
        set_word(segment, v4::TOTAL_LEN, len);
        set_word(segment, v4::IDENTIFICATION, identification);
        set_word(segment, v4::CHECKSUM, !fold(total));
    }

    #[inline]
    fn correct_tcp(&self, segment: &mut [u8], index: usize, payload_sum: u16, is_last: bool) {
        let at = self.shape.transport;
        let sequence = self
            .sequence
            .wrapping_add((index * self.shape.segment_len) as u32);
        let mut flags = self.flags;
        if !is_last {
            flags &= !u16::from(tcp::FIN | tcp::PSH);
        }
        if index > 0 {
            flags &= !u16::from(tcp::CWR);
        }
        let total = self.transport_sum
            + (sequence >> 16)
            + (sequence & 0xffff)
            + u32::from(flags)
            + (segment.len() - at) as u32
            + u32::from(payload_sum);
        set_long(segment, at + tcp::SEQUENCE, sequence);
        set_word(segment, at + tcp::DATA_OFFSET, flags);
        set_word(segment, at + tcp::CHECKSUM, !fold(total));
    }

    #[inline]
    fn correct_udp(&self, segment: &mut [u8], payload_sum: u16) {
        let at = self.shape.transport;
        let len = (segment.len() - at) as u16;
        // The length counts twice: in the header and in the pseudo-header.
        let total = self.transport_sum + 2 * u32::from(len) + u32::from(payload_sum);
        set_word(segment, at + udp::LENGTH, len);
        set_word(segment, at + udp::CHECKSUM, never_zero(!fold(total)));
    }
}

/// Replaces a zero by the other zero of ones' complement: a UDP checksum of 0 means "none" (RFC 768).
#[inline]
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests;
