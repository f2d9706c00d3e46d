//! Packets that came from the tunnel, and those that are made here without a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    checksum::{fold, sum},
    counters::Dropped,
    vnet::VnetHeader,
};

/// The longest packet in bytes, of either family without jumbograms.
pub const LONGEST_PACKET: usize = 65_535;
/// Bytes of a header without options.
pub const IPV4_HEADER: usize = 20;
/// Bytes of a header without extensions.
pub const IPV6_HEADER: usize = 40;
/// Bytes of an extension header of fragments.
pub const FRAGMENT_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// Next headers of IPv6 that are extensions (RFC 8200 §4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;
/// Parts of IPv4's flags and fragment offset (RFC 791 §3.1).
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Extension headers of IPv6 before a packet is taken to be malformed.
const MOST_EXTENSIONS: usize = 8;

/// Protocol number of ICMP.
pub const ICMPV4: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Next header of fragments.
pub const FRAGMENT: u8 = 44;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// An IP packet, cut to its length.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The header that the device has put before it.
    pub vnet: VnetHeader,
    /// All of it.
    pub bytes: &'a [u8],
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The protocol of the payload, behind extension headers.
    pub protocol: u8,
    /// Where the payload begins, behind all headers of IP.
    pub payload_at: usize,
    /// Its place in a packet that was cut; `None` if it is whole.
    pub fragment: Option<Fragment>,
}

/// The part of a packet's payload that this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The number that all fragments of a packet have.
    pub ident: u32,
    /// The place of its first byte in the payload.
    pub offset: usize,
    /// Whether no fragment follows behind it.
    pub is_last: bool,
}

impl<'a> Packet<'a> {
    /// Reads a packet, which may be followed by other bytes.
    ///
    /// # Errors
    /// [`Dropped::Malformed`], or [`Dropped::BadChecksum`] of an IPv4 header.
    pub fn parse(vnet: VnetHeader, bytes: &'a [u8]) -> Result<Self, Dropped> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_v4(vnet, bytes),
            Some(6) => Self::parse_v6(vnet, bytes),
            _ => Err(Dropped::Malformed),
        }
    }

    fn parse_v4(vnet: VnetHeader, bytes: &'a [u8]) -> Result<Self, Dropped> {
        let header: &[u8; IPV4_HEADER] = bytes.first_chunk().ok_or(Dropped::Malformed)?;
        let payload_at = usize::from(header[0] & 15) * 4;
        let length = usize::from(half(header, 2));
        if payload_at < IPV4_HEADER || length < payload_at {
            return Err(Dropped::Malformed);
        }
        let bytes = bytes.get(..length).ok_or(Dropped::Malformed)?;
        if sum(&bytes[..payload_at]) != 0xffff {
            return Err(Dropped::BadChecksum);
        }
        let (flags, [.., a, b, c, d, e, f, g, h]) = (half(header, 6), *header);
        let has_more = flags & MORE_FRAGMENTS != 0;
        let offset = usize::from(flags & FRAGMENT_OFFSET) * 8;
        Ok(Self {
            vnet,
            bytes,
            source: [a, b, c, d].into(),
            destination: [e, f, g, h].into(),
            protocol: header[9],
            payload_at,
            fragment: (has_more || offset > 0).then(|| Fragment {
                ident: half(header, 4).into(),
                offset,
                is_last: !has_more,
            }),
        })
    }

    fn parse_v6(vnet: VnetHeader, bytes: &'a [u8]) -> Result<Self, Dropped> {
        let fixed: &[u8; IPV6_HEADER] = bytes.first_chunk().ok_or(Dropped::Malformed)?;
        let length = IPV6_HEADER + usize::from(half(fixed, 4));
        let bytes = bytes.get(..length).ok_or(Dropped::Malformed)?;
        let (mut protocol, mut at) = (fixed[6], IPV6_HEADER);
        let mut fragment = None;
        for _ in 0..MOST_EXTENSIONS {
            let header = |length: usize| bytes.get(at..at + length).ok_or(Dropped::Malformed);
            match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS if fragment.is_none() => {
                    let head = header(8)?;
                    (protocol, at) = (head[0], at + 8 * (1 + usize::from(head[1])));
                }
                FRAGMENT if fragment.is_none() => {
                    let head = header(FRAGMENT_HEADER)?;
                    let offset = u16::from_be_bytes([head[2], head[3]]);
                    let found = Fragment {
                        ident: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
                        offset: (offset & !7).into(),
                        is_last: offset & 1 == 0,
                    };
                    // The whole of a packet may be in one "fragment" (RFC 6946).
                    let is_whole = found.offset == 0 && found.is_last;
                    fragment = Some(found).filter(|_| !is_whole);
                    (protocol, at) = (head[0], at + FRAGMENT_HEADER);
                }
                _ => break,
            }
        }
        if at > bytes.len() {
            return Err(Dropped::Malformed);
        }
        Ok(Self {
            vnet,
            bytes,
            source: address_at(fixed, 8),
            destination: address_at(fixed, 24),
            protocol,
            payload_at: at,
            fragment,
        })
    }

    /// Copies a packet of IPv6 without its extension headers.
    pub fn without_extensions(&self) -> (VnetHeader, Vec<u8>) {
        let payload = self.payload();
        let mut bytes = [&self.bytes[..IPV6_HEADER], payload].concat();
        bytes[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        bytes[6] = self.protocol;
        let removed = (self.payload_at - IPV6_HEADER) as u16;
        let vnet = VnetHeader {
            hdr_len: self.vnet.hdr_len.saturating_sub(removed),
            csum_start: self.vnet.csum_start.saturating_sub(removed),
            ..self.vnet
        };
        (vnet, bytes)
    }

    /// Returns how many more routers it may pass, with this one.
    pub fn hops(&self) -> u8 {
        match self.source {
            IpAddr::V4(_) => self.bytes[8],
            IpAddr::V6(_) => self.bytes[7],
        }
    }

    /// The traffic class: DSCP and ECN (RFC 2474, RFC 3168).
    pub fn class(&self) -> u8 {
        match (self.source, self.bytes) {
            (IpAddr::V4(_), [_, class, ..]) => *class,
            (IpAddr::V6(_), [high, low, ..]) => high << 4 | low >> 4,
            _ => 0,
        }
    }

    /// Returns the bytes behind all headers of IP.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_at..]
    }

    /// Returns whether its payload's checksum over the pseudo-header is right, or was verified already.
    pub fn has_right_checksum(&self) -> bool {
        self.vnet.is_checked()
            || transport_sum(self.source, self.destination, self.protocol, self.payload()) == 0xffff
    }
}

fn half(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

fn address_at(header: &[u8; IPV6_HEADER], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    octets.into()
}

/// Returns whether a host can be at this address.
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let is_special = it.is_unspecified() || it.is_multicast() || it.is_broadcast();
            !is_special && !it.is_loopback() && it.octets()[0] != 0
        }
        IpAddr::V6(it) => !it.is_unspecified() && !it.is_multicast() && !it.is_loopback(),
    }
}

/// The sum of a transport header, its payload and the pseudo-header, without the final complement.
pub fn transport_sum(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> u16 {
    let pseudo = pseudo_sum(source, destination, protocol, payload.len());
    fold(u32::from(pseudo) + u32::from(sum(payload)))
}

/// The sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
pub fn pseudo_sum(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u16 {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            u32::from(sum(&source.octets())) + u32::from(sum(&destination.octets()))
        }
        _ => {
            let of = |address: IpAddr| match address {
                IpAddr::V4(it) => it.to_ipv6_mapped(),
                IpAddr::V6(it) => it,
            };
            u32::from(sum(&of(source).octets())) + u32::from(sum(&of(destination).octets()))
        }
    };
    let length = length as u32;
    fold(addresses + u32::from(protocol) + (length >> 16) + (length & 0xffff))
}

/// Bytes of an IP header without options.
pub fn ip_header_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => IPV4_HEADER,
        IpAddr::V6(_) => IPV6_HEADER,
    }
}

/// Writes an IP header without options before a payload of this length; the length of the header.
pub fn write_ip_header(
    into: &mut [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    length: usize,
) -> usize {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            write_ipv4(into, source, destination, protocol, length);
            IPV4_HEADER
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            write_ipv6(into, source, destination, protocol, length);
            IPV6_HEADER
        }
        _ => unreachable!("INVARIANT: both ends of a packet are of one family"),
    }
}

fn write_ipv4(
    into: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    length: usize,
) {
    let header = &mut into[..IPV4_HEADER];
    header.fill(0);
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((IPV4_HEADER + length) as u16).to_be_bytes());
    header[8] = HOP_LIMIT;
    header[9] = protocol;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    seal_ipv4(header);
}

/// Gives the packet behind a header of [`write_ip_header`] a traffic class.
pub fn set_class(header: &mut [u8], class: u8) {
    if class == 0 {
        return;
    }
    match header[0] >> 4 {
        4 => {
            header[1] = class;
            seal_ipv4(header);
        }
        _ => {
            header[0] = 0x60 | class >> 4;
            header[1] = class << 4 | header[1] & 0xf;
        }
    }
}

/// Writes the checksum of an IPv4 header without options.
pub fn seal_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !sum(&header[..IPV4_HEADER]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn write_ipv6(
    into: &mut [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    length: usize,
) {
    let header = &mut into[..IPV6_HEADER];
    header.fill(0);
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = protocol;
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&destination.octets());
}

#[cfg(test)]
mod tests;
