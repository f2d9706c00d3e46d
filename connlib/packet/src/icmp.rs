//! ICMP: echo requests are answered, ports that nobody has are reported, and errors about connections are told them.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{
    checksum::sum,
    packet::{
        FRAGMENT, FRAGMENT_HEADER, ICMPV4, ICMPV6, IPV4_HEADER, IPV6_HEADER, Packet, TCP, UDP,
        ip_header_len, transport_sum, write_ip_header,
    },
    segment::Tuple,
};

const HEADER: usize = 8;
/// Longest error (RFC 1812 §4.3.2.3; IPv6 allows 1,280).
const LONGEST_ERROR: usize = 576;

/// An error about a segment that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The ends of its connection.
    pub tuple: Tuple,
    /// Its number.
    pub sequence: u32,
    /// The kind of error.
    pub kind: Kind,
}

/// A kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has not arrived.
    Failed(ErrorKind),
    /// A link on the way takes no longer packets than this.
    TooBig(usize),
}

/// Returns whether a packet's ICMP checksum is right.
pub fn is_intact(packet: &Packet<'_>) -> bool {
    match packet.protocol {
        ICMPV4 => sum(packet.payload()) == 0xffff,
        _ => packet.has_right_checksum(),
    }
}

/// Writes the answer to an echo request; its length, if it is one.
pub fn write_echo(into: &mut [u8], packet: &Packet<'_>) -> Option<usize> {
    let ident = echo_ident(packet)?;
    let ends = (packet.destination, packet.source);
    let (at, request) = (ip_header_len(packet.source), packet.payload());
    let reply = into.get_mut(..at + request.len())?;
    reply[at..].copy_from_slice(request);
    make_echo_reply(reply, ends, ident)?;
    Some(reply.len())
}

/// The identifier of an echo request, if it is one.
pub fn echo_ident(packet: &Packet<'_>) -> Option<u16> {
    match (packet.protocol, packet.payload().first_chunk::<HEADER>()?) {
        (ICMPV4, [8, 0, _, _, a, b, ..]) | (ICMPV6, [128, 0, _, _, a, b, ..]) => {
            Some(u16::from_be_bytes([*a, *b]))
        }
        _ => None,
    }
}

/// Makes an echo reply, with its source and destination, of an echo message behind room for an IP header; `None` if the
/// message has no header.
pub fn make_echo_reply(
    packet: &mut [u8],
    (source, destination): (IpAddr, IpAddr),
    ident: u16,
) -> Option<()> {
    let (protocol, kind) = match source {
        IpAddr::V4(_) => (ICMPV4, 0),
        IpAddr::V6(_) => (ICMPV6, 129),
    };
    let reply = packet.get_mut(ip_header_len(source)..)?;
    let head: &mut [u8; HEADER] = reply.first_chunk_mut()?;
    head[..2].copy_from_slice(&[kind, 0]);
    head[4..6].copy_from_slice(&ident.to_be_bytes());
    seal(source, destination, protocol, reply);
    let length = reply.len();
    write_ip_header(packet, source, destination, protocol, length);
    Some(())
}

/// Why a packet does not reach its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Nobody has the port.
    Port,
    /// There is no way to the host.
    Host,
    /// There is no way to the host's network.
    Network,
    /// The host has not answered a SYN in time. The code of IPv4 for a host without a way would have Linux send the SYN
    /// again at once (RFC 6069), for a connection that it then gives up.
    Silent,
    /// It is forbidden.
    Prohibited,
    /// It has passed as many routers as it may.
    Expired,
    /// A link on the way takes no longer packets than this.
    TooBig(u32),
    /// Another reason, as an ICMP message of the same family gives it, by its type and code.
    Other(u8, u8),
}

impl Unreachable {
    /// The type and code of the ICMP message that says so, and the second half of its header.
    fn message(self, is_ipv4: bool) -> ([u8; 2], u32) {
        let either = |ipv4, ipv6| if is_ipv4 { ipv4 } else { ipv6 };
        match self {
            Self::Port => (either([3, 3], [1, 4]), 0),
            Self::Host => (either([3, 1], [1, 3]), 0),
            Self::Network => (either([3, 0], [1, 0]), 0),
            // For this type of service (RFC 1122, section 3.2.2.1).
            Self::Silent => (either([3, 12], [1, 3]), 0),
            Self::Prohibited => (either([3, 13], [1, 1]), 0),
            Self::Expired => (either([11, 0], [3, 0]), 0),
            Self::TooBig(mtu) => (either([3, 4], [2, 0]), mtu),
            Self::Other(kind, code) => ([kind, code], 0),
        }
    }
}

/// Writes that nobody has the port that a packet was for; its length.
pub fn write_port_unreachable(into: &mut [u8], packet: &Packet<'_>) -> usize {
    let ends = (packet.destination, packet.source);
    write_unreachable(into, Unreachable::Port, ends, packet.bytes)
}

/// Writes why a packet does not reach its destination, given the source and the destination of the error; its length.
pub fn write_unreachable(
    into: &mut [u8],
    why: Unreachable,
    (source, destination): (IpAddr, IpAddr),
    packet: &[u8],
) -> usize {
    let (kind, more) = why.message(source.is_ipv4());
    let (protocol, header) = match source {
        IpAddr::V4(_) => (ICMPV4, IPV4_HEADER),
        IpAddr::V6(_) => (ICMPV6, IPV6_HEADER),
    };
    let quoted = packet.len().min(LONGEST_ERROR - header - HEADER);
    let at = write_ip_header(into, source, destination, protocol, HEADER + quoted);
    let error = &mut into[at..at + HEADER + quoted];
    error[..2].copy_from_slice(&kind);
    error[4..HEADER].copy_from_slice(&more.to_be_bytes());
    error[HEADER..].copy_from_slice(&packet[..quoted]);
    seal(source, destination, protocol, error);
    at + HEADER + quoted
}

fn seal(source: IpAddr, destination: IpAddr, protocol: u8, message: &mut [u8]) {
    message[2..4].fill(0);
    let sum = match protocol {
        ICMPV4 => !sum(message),
        _ => !transport_sum(source, destination, protocol, message),
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// Reads an error about a TCP segment.
pub fn parse_error(packet: &Packet<'_>) -> Option<Report> {
    let (header, quoted) = packet.payload().split_first_chunk::<HEADER>()?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let kind = match (packet.protocol, header[0], header[1]) {
        (ICMPV4, 3, 4) => Kind::TooBig(half(6).into()),
        (ICMPV6, 2, _) => Kind::TooBig(usize::from(half(4)) << 16 | usize::from(half(6))),
        (ICMPV4, 3, 2 | 3) | (ICMPV6, 1, 4) => Kind::Failed(ErrorKind::ConnectionRefused),
        (ICMPV4, 3 | 11, _) | (ICMPV6, 1 | 3, _) => Kind::Failed(ErrorKind::HostUnreachable),
        _ => return None,
    };
    let (tuple, sequence) = parse_quoted(packet.protocol, quoted, TCP)?;
    Some(Report {
        tuple,
        sequence: u32::from_be_bytes(sequence),
        kind,
    })
}

/// Reads that a datagram over IPv6, or its first fragment, was too long for a link that takes this many bytes.
pub fn parse_too_big(packet: &Packet<'_>) -> Option<(Tuple, usize)> {
    let (header, quoted) = packet.payload().split_first_chunk::<HEADER>()?;
    let [2, 0, _, _, mtu @ ..] = *header else {
        return None;
    };
    let (tuple, _) =
        parse_quoted(packet.protocol, quoted, UDP).filter(|_| packet.protocol == ICMPV6)?;
    Some((tuple, u32::from_be_bytes(mtu) as usize))
}

/// The ends of a quoted packet, which may be cut short, and what follows its ports, if it is of the protocol `wanted`.
fn parse_quoted(protocol: u8, quoted: &[u8], wanted: u8) -> Option<(Tuple, [u8; 4])> {
    let (source, destination, transport) = parse_quoted_ip(protocol, quoted, wanted)?;
    let [a, b, c, d, rest @ ..] = *transport.first_chunk::<8>()?;
    let tuple = Tuple {
        local: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        remote: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    };
    Some((tuple, rest))
}

fn parse_quoted_ip(protocol: u8, quoted: &[u8], wanted: u8) -> Option<(IpAddr, IpAddr, &[u8])> {
    if protocol == ICMPV4 {
        let header = quoted.first_chunk::<IPV4_HEADER>()?;
        let address = |at: usize| {
            let bytes: Option<&[u8; 4]> = header[at..].first_chunk();
            bytes.map(|it| IpAddr::from(Ipv4Addr::from(*it)))
        };
        let transport = quoted.get(usize::from(header[0] & 15) * 4..)?;
        (header[9] == wanted).then_some((address(12)?, address(16)?, transport))
    } else {
        let header = quoted.first_chunk::<IPV6_HEADER>()?;
        let address = |at: usize| {
            let bytes: Option<&[u8; 16]> = header[at..].first_chunk();
            bytes.map(|it| IpAddr::from(Ipv6Addr::from(*it)))
        };
        let payload = &quoted[IPV6_HEADER..];
        let (next, transport) = match (header[6], payload.split_first_chunk::<FRAGMENT_HEADER>()) {
            (FRAGMENT, Some(([next, _, 0, offset, ..], rest))) if offset & !7 == 0 => (*next, rest),
            (next, _) => (next, payload),
        };
        (next == wanted).then_some((address(8)?, address(24)?, transport))
    }
}
