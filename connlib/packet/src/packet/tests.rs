use proptest::prelude::*;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet, checksum};

use super::*;

fn parse(bytes: &[u8]) -> Result<Packet<'_>, Dropped> {
    Packet::parse(VnetHeader::default(), bytes)
}

proptest! {
    #[test]
    fn headers_of_ipv4_are_read_as_another_parser_reads_them(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        words in 4..8_u8,
        length in 0..90_u16,
    ) {
        if bytes.len() >= IPV4_HEADER {
            bytes[0] = 0x40 | words;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            let header = (usize::from(words) * 4).min(bytes.len());
            bytes[10..12].fill(0);
            let sum = !sum(&bytes[..header]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        } else if let Some(first) = bytes.first_mut() {
            *first = 0x45;
        }
        let other = Ipv4Packet::new_checked(&bytes[..]).ok();
        let other = other.filter(|it| it.header_len() >= 20);
        match (parse(&bytes), other) {
            (Err(reason), None) => prop_assert_eq!(reason, Dropped::Malformed),
            (Ok(it), Some(other)) => {
                prop_assert_eq!(it.bytes.len(), usize::from(other.total_len()));
                prop_assert_eq!(it.payload_at, usize::from(other.header_len()));
                prop_assert_eq!(it.source, IpAddr::from(other.src_addr()));
                prop_assert_eq!(it.destination, IpAddr::from(other.dst_addr()));
                prop_assert_eq!(it.protocol, u8::from(other.next_header()));
                prop_assert_eq!(it.hops(), other.hop_limit());
                let offset = usize::from(other.frag_offset());
                prop_assert_eq!(it.fragment.is_some(), other.more_frags() || offset > 0);
                if let Some(fragment) = it.fragment {
                    let expected = (u32::from(other.ident()), offset, !other.more_frags());
                    let found = (fragment.ident, fragment.offset, fragment.is_last);
                    prop_assert_eq!(found, expected);
                }
            }
            (parsed, other) => prop_assert!(false, "{parsed:?} {other:?}"),
        }
    }

    #[test]
    fn headers_of_ipv6_are_read_as_another_parser_reads_them(
        mut bytes in prop::collection::vec(any::<u8>(), 0..90),
        length in 0..60_u16,
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = 0x60;
        }
        if bytes.len() >= IPV6_HEADER {
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes[6] = UDP;
        }
        let other = Ipv6Packet::new_checked(&bytes[..]).ok();
        match (parse(&bytes), other) {
            (Err(reason), None) => prop_assert_eq!(reason, Dropped::Malformed),
            (Ok(it), Some(other)) => {
                prop_assert_eq!(it.bytes.len(), other.total_len());
                prop_assert_eq!(it.source, IpAddr::from(other.src_addr()));
                prop_assert_eq!(it.destination, IpAddr::from(other.dst_addr()));
                prop_assert_eq!((it.protocol, it.payload_at), (UDP, IPV6_HEADER));
            }
            (parsed, other) => prop_assert!(false, "{parsed:?} {other:?}"),
        }
    }

    #[test]
    fn sums_over_pseudo_headers_are_those_of_another_implementation(
        v4 in any::<[u32; 2]>(),
        v6 in any::<[u128; 2]>(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let v4 = v4.map(|it| IpAddr::from(Ipv4Addr::from_bits(it)));
        let v6 = v6.map(|it| IpAddr::from(Ipv6Addr::from_bits(it)));
        for [source, destination] in [v4, v6] {
            let pseudo = checksum::pseudo_header(
                &source.into(),
                &destination.into(),
                UDP.into(),
                payload.len() as u32,
            );
            let expected = checksum::combine(&[pseudo, checksum::data(&payload)]);
            prop_assert_eq!(transport_sum(source, destination, UDP, &payload), expected);
        }
    }
}

/// Behind the fragment header of a packet that was not cut (RFC 6946), other extension headers may follow.
#[test]
fn a_whole_packet_behind_a_fragment_header_is_read_to_its_payload() {
    let mut bytes = [0; IPV6_HEADER + FRAGMENT_HEADER + 8 + 8];
    bytes[0] = 0x60;
    bytes[5] = (bytes.len() - IPV6_HEADER) as u8;
    bytes[6] = FRAGMENT;
    let [head, options] = [IPV6_HEADER, IPV6_HEADER + FRAGMENT_HEADER];
    bytes[head] = DESTINATION_OPTIONS;
    bytes[options] = UDP;
    let it = parse(&bytes).unwrap();
    let found = (it.protocol, it.payload_at, it.fragment);
    assert_eq!(found, (UDP, options + 8, None));
    // The first fragment of several: what follows is part of what was cut.
    bytes[head + 3] = 1;
    let it = parse(&bytes).unwrap();
    assert_eq!((it.protocol, it.payload_at), (DESTINATION_OPTIONS, options));
    assert!(it.fragment.is_some());
}
