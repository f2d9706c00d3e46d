//! The IP header fields for routing and ECN.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Shortest IPv4 header, in bytes (RFC 791).
const IPV4_HEADER: usize = 20;
/// IPv6 header, in bytes (RFC 8200).
const IPV6_HEADER: usize = 40;
/// Time to live and hop limit of packets that the node makes (RFC 1700).
const HOPS: u8 = 64;

/// Returns the destination address; `None` if `packet` is not IP, or is shorter than its header says.
#[must_use]
pub(crate) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if is_whole_ipv4(packet) => Some(ipv4_at(packet, 16)),
        6 if is_whole_ipv6(packet) => Some(ipv6_at(packet, 24)),
        _ => None,
    }
}

/// The source address; `None` as for [`destination`].
#[must_use]
pub(crate) fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if is_whole_ipv4(packet) => Some(ipv4_at(packet, 12)),
        6 if is_whole_ipv6(packet) => Some(ipv6_at(packet, 8)),
        _ => None,
    }
}

/// The length from the header, in bytes; `None` as for [`destination`].
#[must_use]
pub(crate) fn length(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 if is_whole_ipv4(packet) => Some(be16_at(packet, 2)),
        6 if is_whole_ipv6(packet) => Some(IPV6_HEADER + be16_at(packet, 4)),
        _ => None,
    }
}

/// The payload of a UDP datagram or of its first fragment, given a valid IP packet; `None` for anything else.
#[must_use]
pub(crate) fn udp_payload(packet: &[u8]) -> Option<&[u8]> {
    const UDP: u8 = 17;
    const UDP_HEADER: usize = 8;
    const FRAGMENT: u8 = 44;
    const FRAGMENT_HEADER: usize = 8;
    let (protocol, header) = match packet.first()? >> 4 {
        4 if be16_at(packet, 6) & 0x1fff == 0 => (packet[9], usize::from(packet[0] & 0xf) * 4),
        6 => match (packet[6], &packet[IPV6_HEADER..]) {
            (FRAGMENT, [protocol, _, 0, 0..8, ..]) => (*protocol, IPV6_HEADER + FRAGMENT_HEADER),
            (protocol, _) => (protocol, IPV6_HEADER),
        },
        _ => return None,
    };
    packet
        .get(header + UDP_HEADER..)
        .filter(|_| protocol == UDP)
}

/// An IPv4 header without options, for a payload of `len` bytes (RFC 791). `addresses`: source, then destination.
pub(crate) fn header_v4(addresses: [&[u8]; 2], protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(((IPV4_HEADER + len) as u16).to_be_bytes());
    header.extend([0, 0, 0, 0, HOPS, protocol, 0, 0]);
    header.extend(addresses.concat());
    let checksum = !sum(&header, 0);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// An IPv6 header, as [`header_v4`] (RFC 8200).
pub(crate) fn header_v6(addresses: [&[u8]; 2], protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((len as u16).to_be_bytes());
    header.extend([protocol, HOPS]);
    header.extend(addresses.concat());
    header
}

/// Sums the pseudo-header for a payload of `len` bytes (RFC 768, RFC 8200 §8.1). `addresses`: both, in a row.
pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> u32 {
    u32::from(sum(addresses, 0)) + len as u32 + u32::from(protocol)
}

/// The ones' complement sum of 16-bit words (RFC 1071).
pub(crate) fn sum(bytes: &[u8], initial: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u16::from_be_bytes([high, low]),
        _ => u16::from_be_bytes([word[0], 0]),
    });
    let mut sum = initial + words.map(u32::from).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The two ECN bits of a valid IP packet (RFC 3168).
#[must_use]
pub(crate) fn ecn(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => packet[1] & 0b11,
        _ => (packet[1] >> 4) & 0b11,
    }
}

/// Meaning of the outer header's ECN mark for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// The way is not congested.
    None,
    /// The packet tells its receiver.
    Told,
    /// The packet is not ECN-capable, so its receiver does not learn of it.
    Untold,
}

/// Applies the outer header's ECN mark to a valid IP packet, as RFC 6040 §4.2 says, with one exception.
///
/// A packet that is not ECN-capable and was marked for congestion passes as it is, as with WireGuard in the kernel:
/// on a path that marks everything, dropping it would be a black hole.
pub(crate) fn decapsulate_ecn(packet: &mut [u8], outer: u8) -> Congestion {
    const NOT_ECT: u8 = 0b00;
    const ECT_1: u8 = 0b01;
    const ECT_0: u8 = 0b10;
    const CE: u8 = 0b11;
    match (ecn(packet), outer) {
        (NOT_ECT, CE) => return Congestion::Untold,
        (ECT_0 | ECT_1, CE) => set_ecn(packet, CE),
        (ECT_0, ECT_1) => set_ecn(packet, ECT_1),
        _ => {}
    }
    match outer {
        CE => Congestion::Told,
        _ => Congestion::None,
    }
}

fn set_ecn(packet: &mut [u8], ecn: u8) {
    if packet[0] >> 4 == 6 {
        packet[1] = (packet[1] & !0b0011_0000) | (ecn << 4);
        return;
    }
    let old = packet[1];
    packet[1] = (old & !0b11) | ecn;
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let old_word = u16::from_be_bytes([packet[0], old]);
    let new_word = u16::from_be_bytes([packet[0], packet[1]]);
    let updated = updated_checksum(checksum, old_word, new_word);
    packet[10..12].copy_from_slice(&updated.to_be_bytes());
}

/// The checksum after one of the words under it has changed (RFC 1624, equation 3).
pub(crate) fn updated_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !(folded as u16)
}

fn is_whole_ipv4(packet: &[u8]) -> bool {
    if packet.len() < IPV4_HEADER {
        return false;
    }
    let header = usize::from(packet[0] & 0xf) * 4;
    header >= IPV4_HEADER && (header..=packet.len()).contains(&be16_at(packet, 2))
}

fn is_whole_ipv6(packet: &[u8]) -> bool {
    packet.len() >= IPV6_HEADER && IPV6_HEADER + be16_at(packet, 4) <= packet.len()
}

pub(crate) fn be16_at(packet: &[u8], offset: usize) -> usize {
    u16::from_be_bytes([packet[offset], packet[offset + 1]]).into()
}

fn ipv4_at(packet: &[u8], offset: usize) -> IpAddr {
    let mut octets = [0; 4];
    octets.copy_from_slice(&packet[offset..offset + 4]);
    Ipv4Addr::from(octets).into()
}

fn ipv6_at(packet: &[u8], offset: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&packet[offset..offset + 16]);
    Ipv6Addr::from(octets).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_shorter_than_its_header_says_has_no_addresses() {
        let mut packet = ipv4(0);
        assert_eq!(destination(&packet), Some([10, 0, 0, 2].into()));
        assert_eq!(source(&packet), Some([10, 0, 0, 1].into()));
        assert_eq!(length(&packet), Some(20));
        assert_eq!(
            length(&[&packet[..], &[0; 12]].concat()),
            Some(20),
            "padded"
        );
        packet[3] = 21;
        assert_eq!(destination(&packet), None);
        assert_eq!(length(&packet), None);
        packet[3] = 19;
        assert_eq!(
            destination(&packet),
            None,
            "total length below the header length"
        );
        assert_eq!(destination(&[]), None);
        assert_eq!(destination(&[0x60; 39]), None);
        assert_eq!(destination(&[0x50; 60]), None, "neither IPv4 nor IPv6");
    }

    /// RFC 6040 figure 4: one row per inner value, one column per outer value. Where it drops, the packet passes.
    #[test]
    fn decapsulation_follows_rfc_6040_but_drops_nothing() {
        let table = [
            // outer: Not-ECT ECT(1) ECT(0) CE
            (0b00, [0b00, 0b00, 0b00, 0b00]),
            (0b01, [0b01, 0b01, 0b01, 0b11]),
            (0b10, [0b10, 0b01, 0b10, 0b11]),
            (0b11, [0b11, 0b11, 0b11, 0b11]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [0b00, 0b01, 0b10, 0b11].into_iter().zip(row) {
                let (mut v4, mut v6) = (ipv4(inner), ipv6(inner));
                for packet in [&mut v4[..], &mut v6[..]] {
                    let congestion = decapsulate_ecn(packet, outer);
                    assert_eq!(ecn(packet), expected);
                    let told = match (inner, outer) {
                        (0b00, 0b11) => Congestion::Untold,
                        (_, 0b11) => Congestion::Told,
                        _ => Congestion::None,
                    };
                    assert_eq!(congestion, told);
                }
                assert_eq!(header_sum(&v4), 0xffff, "the header checksum stays valid");
            }
        }
    }

    fn ipv4(ecn: u8) -> [u8; 20] {
        let mut packet = [
            0x45, ecn, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let checksum = !header_sum(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    fn ipv6(ecn: u8) -> [u8; 40] {
        let mut packet = [0; 40];
        packet[0] = 0x60;
        packet[1] = 0x0f | (ecn << 4);
        packet
    }

    fn header_sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|w| u16::from_be_bytes([w[0], w[1]]));
        let sum: u32 = words.map(u32::from).sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    }
}
