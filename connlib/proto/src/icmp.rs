//! ICMP errors for senders inside the tunnel (RFC 792, RFC 1191, RFC 4443).
//!
//! - Packet too long for the path: "fragmentation needed", "packet too big".
//! - No peer for its destination, or no endpoint of that peer (WireGuard paper, §3): "host
//!   unreachable", "address unreachable".

use std::net::{IpAddr, Ipv4Addr};

use crate::{
    mss::EXTENSIONS,
    packet::{self, header_v4, header_v6, pseudo_header, sum},
};

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
const ICMPV4: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
/// Longest ICMP error over IPv4, in bytes: every host accepts an IPv4 packet of that length (RFC 791).
const IPV4_MINIMUM: usize = 576;
/// Longest ICMP error over IPv6, in bytes: every link carries an IPv6 packet of that length (RFC 8200).
const IPV6_MINIMUM: usize = 1280;

/// The error for a valid IP packet that is longer than `mtu` bytes, sent from the packet's destination
/// address; `None` if the RFCs forbid one.
pub(crate) fn too_big(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    match packet[0] >> 4 {
        // Answer only senders that forbid fragmentation.
        4 if packet[6] & 0x40 != 0 && may_answer_v4(packet) => {
            let [high, low] = mtu.to_be_bytes();
            Some(error_v4(packet, [3, 4], [0, 0, high, low]))
        }
        // Answer even multicast (RFC 4443 §2.4 e.3).
        6 if may_answer_v6(packet) => Some(error_v6(packet, [2, 0], u32::from(mtu).to_be_bytes())),
        _ => None,
    }
}

/// The error for a valid IP packet whose destination is unreachable; `None` if the RFCs forbid one.
pub(crate) fn unreachable(packet: &[u8]) -> Option<Vec<u8>> {
    let is_multicast = packet::destination(packet).is_none_or(|ip| ip.is_multicast());
    match packet[0] >> 4 {
        4 if may_answer_v4(packet) => Some(error_v4(packet, [3, 1], [0; 4])),
        6 if may_answer_v6(packet) && !is_multicast => Some(error_v6(packet, [1, 3], [0; 4])),
        _ => None,
    }
}

/// Returns whether an error may answer this IPv4 packet: not if it is an error itself, a fragment other than the
/// first, or multicast or broadcast (RFC 1122 §3.2.2).
fn may_answer_v4(packet: &[u8]) -> bool {
    let is_first_fragment = packet[6] & 0x1f == 0 && packet[7] == 0;
    let header = usize::from(packet[0] & 0xf) * 4;
    let is_query = packet[9] != ICMPV4 || matches!(packet.get(header), Some(0 | 8 | 13..=18));
    let is_unicast = packet::destination(packet)
        .is_some_and(|ip| !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST));
    is_first_fragment && is_query && is_unicast && has_unicast_source(packet)
}

/// Returns whether an error may answer this IPv6 packet: not if it is an error itself, with a type below 128
/// (RFC 4443 §2.4 e). Follows extension headers as far as an error can reach.
fn may_answer_v6(packet: &[u8]) -> bool {
    let head = &packet[..packet.len().min(IPV6_MINIMUM)];
    let (mut next, mut at) = (packet[6], IPV6_HEADER);
    while let Some([following, units, offset @ ..]) =
        head.get(at..).and_then(|it| it.first_chunk::<4>())
    {
        // Behind the fragment header of a later fragment there is no header.
        at += match (next, offset) {
            (FRAGMENT, [0, 0..8]) => 8,
            _ if EXTENSIONS.contains(&next) => 8 * (1 + usize::from(*units)),
            _ => break,
        };
        next = *following;
    }
    let is_query = next != ICMPV6 || head.get(at).is_some_and(|t| *t >= 128);
    is_query && has_unicast_source(packet)
}

/// Returns whether the source address belongs to one host, which can be answered.
fn has_unicast_source(packet: &[u8]) -> bool {
    packet::source(packet).is_some_and(|ip| !ip.is_multicast() && !ip.is_unspecified())
}

/// Builds an ICMP error over IPv4. `kind` is its type and code, `rest` the second word of its header.
fn error_v4(packet: &[u8], kind: [u8; 2], rest: [u8; 4]) -> Vec<u8> {
    let quoted = packet.len().min(IPV4_MINIMUM - IPV4_HEADER - ICMP_HEADER);
    let addresses = [&packet[16..20], &packet[12..16]];
    let mut answer = header_v4(addresses, ICMPV4, ICMP_HEADER + quoted);
    answer.extend(kind);
    answer.extend([0, 0]);
    answer.extend(rest);
    answer.extend(&packet[..quoted]);
    let checksum = !sum(&answer[IPV4_HEADER..], 0);
    answer[IPV4_HEADER + 2..][..2].copy_from_slice(&checksum.to_be_bytes());
    answer
}

/// Builds an ICMP error over IPv6; parameters as for [`error_v4`].
fn error_v6(packet: &[u8], kind: [u8; 2], rest: [u8; 4]) -> Vec<u8> {
    let quoted = packet.len().min(IPV6_MINIMUM - IPV6_HEADER - ICMP_HEADER);
    let len = ICMP_HEADER + quoted;
    let mut answer = header_v6([&packet[24..40], &packet[8..24]], ICMPV6, len);
    answer.extend(kind);
    answer.extend([0, 0]);
    answer.extend(rest);
    answer.extend(&packet[..quoted]);
    let pseudo = pseudo_header(&answer[8..IPV6_HEADER], ICMPV6, len);
    let checksum = !sum(&answer[IPV6_HEADER..], pseudo);
    answer[IPV6_HEADER + 2..][..2].copy_from_slice(&checksum.to_be_bytes());
    answer
}

#[cfg(test)]
mod tests;
