//! ICMP errors that say that a datagram of the inner tunnel was too long for its way (RFC 1191, RFC 4443).

use std::net::{IpAddr, SocketAddr};

use convoy_packet::{
    icmp,
    packet::{ICMPV4, ICMPV6, Packet},
};

use crate::wrapped::Sender;

/// Bytes of the header of an error.
const HEADER: usize = 8;
/// Bytes of headers, without options.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
/// The smallest MTUs that are believed: those that every host accepts (RFC 791, RFC 8200).
const IPV4_MINIMUM: usize = 576;
const IPV6_MINIMUM: usize = 1280;

/// A datagram that was too long for its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBig<'a> {
    /// Its receiver.
    pub(crate) to: SocketAddr,
    /// Its length in bytes, or a shorter one that still exceeds the reported MTU.
    pub(crate) length: usize,
    /// Whether it was longer than the reported MTU, or the smallest one believed: routers forward any other.
    pub(crate) has_exceeded: bool,
    /// Its beginning, as far as it is quoted.
    pub(crate) message: &'a [u8],
}

/// Reads an error about a datagram of `own`; `None` if it is anything else.
pub(crate) fn read<'a>(packet: &Packet<'a>, own: &Sender) -> Option<TooBig<'a>> {
    let (header, quoted) = packet.payload().split_first_chunk::<HEADER>()?;
    let (header_len, mtu) = match (packet.protocol, header) {
        (ICMPV4, [3, 4, _, _, _, _, mtu @ ..]) if is_ipv4_udp(quoted) => {
            let mtu = usize::from(u16::from_be_bytes(*mtu));
            (IPV4_HEADER, mtu.max(IPV4_MINIMUM))
        }
        (ICMPV6, [2, 0, _, _, mtu @ ..]) if is_ipv6_udp(quoted) => {
            let mtu = u32::from_be_bytes(*mtu) as usize;
            (IPV6_HEADER, mtu.max(IPV6_MINIMUM))
        }
        _ => return None,
    };
    if !icmp::is_intact(packet) {
        return None;
    }
    let (source, to, length) = ends(quoted, header_len)?;
    let half = |at: usize| {
        quoted
            .get(at..at + 2)
            .map(|it| u16::from_be_bytes([it[0], it[1]]))
    };
    let is_ours = own.address(source.is_ipv4()) == Some(source) && half(header_len)? == own.port;
    let message = quoted.get(header_len + UDP_HEADER..)?;
    is_ours.then_some(TooBig {
        to: SocketAddr::new(to, half(header_len + 2)?),
        length: length.min(mtu + 1 - header_len).checked_sub(UDP_HEADER)?,
        has_exceeded: header_len + length > mtu,
        message,
    })
}

/// Returns whether a quoted packet is such as [`crate::wrapped::Wrapped`] makes: it has no options and is no fragment.
fn is_ipv4_udp(quoted: &[u8]) -> bool {
    let is_first = |it: &[u8; IPV4_HEADER]| it[6] & 0x3f == 0 && it[7] == 0;
    let header = quoted.first_chunk::<IPV4_HEADER>();
    header.is_some_and(|it| it[0] == 0x45 && it[9] == UDP && is_first(it))
}

fn is_ipv6_udp(quoted: &[u8]) -> bool {
    let header = quoted.first_chunk::<IPV6_HEADER>();
    header.is_some_and(|it| it[0] >> 4 == 6 && it[6] == UDP)
}

/// The source, the destination and the length behind the header of a quoted packet.
fn ends(quoted: &[u8], header: usize) -> Option<(IpAddr, IpAddr, usize)> {
    match header {
        IPV4_HEADER => {
            let it = quoted.first_chunk::<IPV4_HEADER>()?;
            let address = |at: usize| [it[at], it[at + 1], it[at + 2], it[at + 3]].into();
            let length = usize::from(u16::from_be_bytes([it[2], it[3]]));
            Some((address(12), address(16), length.checked_sub(header)?))
        }
        _ => {
            let it = quoted.first_chunk::<IPV6_HEADER>()?;
            let address = |at: usize| {
                let octets: Option<&[u8; 16]> = it[at..].first_chunk();
                octets.map(|octets| (*octets).into())
            };
            let length = usize::from(u16::from_be_bytes([it[4], it[5]]));
            Some((address(8)?, address(24)?, length))
        }
    }
}
