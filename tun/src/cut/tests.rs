use proptest::prelude::*;

use convoy_packet::checksum::sum;

use super::*;
use crate::testing::{Headers, any_headers, naive_sum, payload};

proptest! {
    #[test]
    fn the_segments_are_those_of_the_obvious_segmentation(
        headers in any_headers(),
        len in 0..20_000usize,
        segment_len in prop_oneof![1..64usize, 500..1500usize, 1500..30_000usize],
        ecn: bool,
    ) {
        let len = len.min(segment_len * 300);
        let payload = payload(len, headers.ttl);
        let (mut vnet, mut packet) = headers.super_packet(&payload, segment_len);
        if ecn && headers.is_tcp {
            vnet.gso_type |= GSO_ECN;
        }
        let cut = cut_all(vnet, &mut packet);
        prop_assert_eq!(cut, Ok(headers.segments(&payload, segment_len)));
    }

    #[test]
    fn a_super_packet_whose_checksum_was_verified_is_cut_alike(
        headers in any_headers(),
        len in 0..5_000usize,
        checksum: u16,
    ) {
        let payload = payload(len, headers.ttl);
        let (vnet, mut packet) = headers.super_packet(&payload, 500);
        let field = headers.transport() + usize::from(vnet.csum_offset);
        set_word(&mut packet, field, checksum);
        let vnet = VnetHeader {
            flags: DATA_VALID,
            csum_start: 0,
            csum_offset: 0,
            ..vnet
        };
        let cut = cut_all(vnet, &mut packet);
        prop_assert_eq!(cut, Ok(headers.segments(&payload, 500)));
    }

    #[test]
    fn no_virtio_header_makes_it_panic(
        header: [u8; convoy_packet::vnet::VNET_LEN],
        mut packet in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = cut_all(VnetHeader::parse(header), &mut packet);
    }

    #[test]
    fn no_damage_to_a_super_packet_makes_it_panic(
        headers in any_headers(),
        damage in proptest::collection::vec((0..90usize, any::<u8>()), 1..4),
        vnet_damage in proptest::option::of((0..10usize, any::<u8>())),
        cut_off in 0..100usize,
        is_verified: bool,
    ) {
        let (vnet, mut packet) = headers.super_packet(&payload(500, 1), 100);
        for (at, value) in damage {
            packet[at % 70] = value;
        }
        packet.truncate(packet.len() - cut_off);
        let mut vnet = vnet.to_bytes();
        if is_verified {
            vnet[0] = DATA_VALID;
        }
        if let Some((at, value)) = vnet_damage {
            vnet[at] = value;
        }
        let _ = cut_all(VnetHeader::parse(vnet), &mut packet);
    }

    #[test]
    fn the_checksum_of_a_single_packet_is_completed(headers in any_headers(), len in 0..2000usize) {
        let payload = payload(len, 3);
        let (mut vnet, mut packet) = headers.super_packet(&payload, 1000);
        vnet.gso_type = GSO_NONE;
        vnet.gso_size = 0;
        prop_assert_eq!(unframe(vnet, &mut packet), Ok(Framing::Whole));
        prop_assert_eq!(naive_sum_of_transport(&headers, &packet), 0xffff);
        let field = headers.transport() + usize::from(vnet.csum_offset);
        prop_assert_ne!(word(&packet, field), 0);
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut headers = Headers::new(true, false);
    let mut all_ones = 0;
    for port in 0..=u16::MAX {
        headers.ports.0 = port;
        let (vnet, packet) = headers.super_packet(&[0; 8], 4);
        let segment = cut_all(vnet, &mut packet.clone()).unwrap().remove(0);
        let single = VnetHeader {
            gso_type: GSO_NONE,
            ..vnet
        };
        let single = cut_all(single, &mut packet.clone()).unwrap().remove(0);
        for checksum in [word(&segment, 26), word(&single, 26)] {
            assert_ne!(checksum, 0, "port {port}");
            all_ones += usize::from(checksum == 0xffff);
        }
    }
    assert!(all_ones >= 2);
}

#[test]
fn headers_that_contradict_each_other_are_malformed() {
    let (vnet, packet) = Headers::new(true, true).super_packet(&payload(300, 0), 100);
    let check = |vnet: VnetHeader, packet: &[u8]| unframe(vnet, &mut packet.to_vec());
    assert!(check(vnet, &packet).is_ok());

    for vnet in [
        VnetHeader {
            gso_size: 0,
            ..vnet
        },
        VnetHeader { flags: 0, ..vnet },
        VnetHeader {
            gso_type: GSO_TCPV6,
            ..vnet
        },
        VnetHeader {
            gso_type: GSO_UDP_L4,
            ..vnet
        },
        VnetHeader {
            gso_type: 3,
            ..vnet
        },
        VnetHeader {
            csum_start: 24,
            ..vnet
        },
        VnetHeader {
            csum_offset: 6,
            ..vnet
        },
    ] {
        assert_eq!(check(vnet, &packet), Err(Malformed), "{vnet:?}");
    }
    for (at, value) in [
        (0, 0x65),
        (0, 0x46),
        (2, 0xff),
        (6, 0x20),
        (9, 17),
        (32, 0x40),
        (32, 0xf0),
    ] {
        let mut packet = packet[..if at == 32 { 60 } else { packet.len() }].to_vec();
        let len = packet.len() as u16;
        set_word(&mut packet, v4::TOTAL_LEN, len);
        packet[at] = value;
        assert_eq!(
            check(vnet, &packet),
            Err(Malformed),
            "byte {at} = {value:#x}"
        );
    }
    let far = VnetHeader {
        flags: NEEDS_CSUM,
        csum_start: 200,
        csum_offset: 300,
        ..VnetHeader::default()
    };
    assert_eq!(check(far, &packet), Err(Malformed));
    assert_eq!(check(VnetHeader::default(), &[]), Err(Malformed));
}

#[test]
fn extension_headers_that_do_not_lead_to_the_transport_header_are_malformed() {
    let headers = Headers {
        network_options: 2,
        ..Headers::new(false, true)
    };
    let (vnet, packet) = headers.super_packet(&payload(300, 0), 100);
    let check = |at: usize, value: u8| {
        let mut packet = packet.clone();
        packet[at] = value;
        unframe(vnet, &mut packet)
    };
    assert!(check(7, 64).is_ok());
    for (at, value) in [
        (6, 6),
        (6, 17),
        (6, 44),
        (40, 6),
        (41, 1),
        (41, 255),
        (48, 17),
        (49, 1),
    ] {
        assert_eq!(check(at, value), Err(Malformed), "byte {at} = {value}");
    }
}

fn cut_all(vnet: VnetHeader, packet: &mut [u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let Framing::Super(shape) = unframe(vnet, packet)? else {
        return Ok(vec![packet.to_vec()]);
    };
    let cutter = Cutter::new(shape, packet);
    let segments = (0..shape.segments()).map(|index| {
        let sum = sum(&packet[cutter.payload(index)]);
        let segment = cutter.cut(packet, index, sum);
        packet[segment].to_vec()
    });
    Ok(segments.collect())
}

fn naive_sum_of_transport(headers: &Headers, packet: &[u8]) -> u16 {
    let mut data = packet[if headers.is_v4 { 12..20 } else { 8..40 }].to_vec();
    let transport = &packet[headers.transport()..];
    data.extend_from_slice(&[0, if headers.is_tcp { 6 } else { 17 }]);
    data.extend_from_slice(&(transport.len() as u16).to_be_bytes());
    data.extend_from_slice(transport);
    naive_sum(&data)
}
