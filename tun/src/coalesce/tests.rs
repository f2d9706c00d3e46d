use super::*;
use crate::testing::{Headers, payload};

const BOTH: Coalesce = Coalesce {
    tcp: true,
    udp: true,
};

/// The number of packets in each train that these packets form.
fn trains_of(packets: &[Vec<u8>]) -> Vec<usize> {
    let mut trains = Trains::new();
    let buffer = packets.concat();
    let mut start = 0;
    for packet in packets {
        trains.add(&buffer, start, start + packet.len(), BOTH);
        start += packet.len();
    }
    assert_eq!(trains.packets(), packets.len());
    trains.trains().iter().map(|train| train.packets).collect()
}

/// The trains of six packets of one flow, with a change in the fourth and all later ones.
fn changed(is_v4: bool, is_tcp: bool, change: impl Fn(&mut Headers)) -> Vec<usize> {
    let mut headers = Headers::new(is_v4, is_tcp);
    let packets: Vec<Vec<u8>> = (0..6)
        .map(|nth| {
            if nth == 3 {
                change(&mut headers);
            }
            let packet = headers.packet(&payload(500, nth));
            headers.sequence = headers.sequence.wrapping_add(500);
            headers.identification = headers.identification.wrapping_add(1);
            packet
        })
        .collect();
    trains_of(&packets)
}

#[test]
fn packets_that_differ_in_nothing_but_their_place_make_one_train() {
    for (is_v4, is_tcp) in [(true, true), (true, false), (false, true), (false, false)] {
        assert_eq!(
            changed(is_v4, is_tcp, |_| {}),
            [6],
            "v4 {is_v4} tcp {is_tcp}"
        );
    }
}

#[test]
fn a_change_in_the_network_header_begins_a_new_train() {
    for (is_v4, is_tcp) in [(true, true), (true, false), (false, true), (false, false)] {
        assert_eq!(changed(is_v4, is_tcp, |headers| headers.ttl += 1), [3, 3]);
        assert_eq!(
            changed(is_v4, is_tcp, |headers| headers.traffic_class += 1),
            [3, 3]
        );
        assert_eq!(
            changed(is_v4, is_tcp, |headers| headers.source += 1),
            [3, 3]
        );
        assert_eq!(
            changed(is_v4, is_tcp, |headers| headers.ports.0 += 1),
            [3, 3]
        );
        assert_eq!(
            changed(is_v4, is_tcp, |headers| headers.ports.1 += 1),
            [3, 3]
        );
    }
    assert_eq!(changed(true, true, |headers| headers.fragment = 0), [3, 3]);
}

#[test]
fn a_change_in_the_tcp_header_begins_a_new_train() {
    for is_v4 in [true, false] {
        assert_eq!(
            changed(is_v4, true, |headers| headers.sequence += 1),
            [3, 3]
        );
        assert_eq!(
            changed(is_v4, true, |headers| headers.acknowledgement += 1),
            [3, 3]
        );
        assert_eq!(changed(is_v4, true, |headers| headers.window += 1), [3, 3]);
        assert_eq!(
            changed(is_v4, true, |headers| headers.option_byte += 1),
            [3, 3]
        );
        assert_eq!(
            changed(is_v4, true, |headers| headers.tcp_options += 1),
            [3, 3]
        );
    }
}

#[test]
fn a_change_in_the_bits_beside_the_data_offset_begins_a_new_train() {
    // One is of accurate ECN (RFC 9768), the others are reserved. Joining would give all the first's.
    for bit in 0..4 {
        let headers = Headers::new(true, true);
        let mut packets = headers.segments(&payload(3000, 1), 500);
        for packet in &mut packets[3..] {
            packet[32] |= 1 << bit;
        }
        assert_eq!(trains_of(&packets), [3, 3], "bit {bit}");
        assert_eq!(trains_of(&packets[3..]), [3], "bit {bit}");
    }
}

#[test]
fn packets_that_are_more_than_data_stay_alone() {
    for flags in [0x02, 0x04, 0x11, 0x12, 0x30, 0x50, 0x90, 0x00] {
        assert_eq!(
            changed(true, true, |headers| headers.flags = flags),
            [3, 1, 1, 1],
            "{flags:#x}"
        );
    }
    assert_eq!(
        changed(true, true, |headers| headers.network_options = 1),
        [3, 1, 1, 1]
    );
    assert_eq!(
        changed(false, true, |headers| headers.network_options = 1),
        [3, 1, 1, 1]
    );
    assert_eq!(
        changed(true, false, |headers| headers.fragment = 0x2000),
        [3, 1, 1, 1]
    );
}

#[test]
fn identifications_matter_only_where_fragments_are_allowed() {
    let packets = |fragment, ids: [u16; 4]| {
        let mut headers = Headers {
            fragment,
            ..Headers::new(true, false)
        };
        let packets = ids.map(|id| {
            headers.identification = id;
            headers.packet(b"equally long")
        });
        trains_of(&packets)
    };
    assert_eq!(packets(0, [65_534, 65_535, 0, 1]), [4]);
    assert_eq!(packets(0, [1, 2, 4, 5]), [2, 2]);
    assert_eq!(packets(0x4000, [0, 0, 0, 9]), [4]);
}

#[test]
fn a_shorter_packet_ends_the_train_and_a_longer_one_begins_another() {
    let lens = |lens: &[usize]| {
        let mut headers = Headers::new(true, true);
        let mut packets = Vec::new();
        for len in lens {
            packets.push(headers.packet(&payload(*len, 1)));
            headers.sequence = headers.sequence.wrapping_add(*len as u32);
        }
        trains_of(&packets)
    };
    assert_eq!(lens(&[500, 500, 499, 499, 499]), [3, 2]);
    assert_eq!(lens(&[500, 500, 501, 501]), [2, 2]);
    assert_eq!(lens(&[500, 0, 500]), [1, 1, 1]);
    assert_eq!(lens(&[30_000, 30_000, 5_000, 1]), [2, 2]);
    assert_eq!(lens(&[30_000, 30_000, 30_000]), [2, 1]);
}

#[test]
fn a_push_ends_the_train_that_it_is_in() {
    let mut headers = Headers::new(false, true);
    let packets: Vec<Vec<u8>> = [0x10, 0x18, 0x10, 0x10, 0x18, 0x18]
        .map(|flags| {
            headers.flags = flags;
            let packet = headers.packet(&payload(100, 1));
            headers.sequence = headers.sequence.wrapping_add(100);
            packet
        })
        .to_vec();
    assert_eq!(trains_of(&packets), [2, 3, 1]);
}

#[test]
fn nothing_joins_a_train_across_a_packet_of_unknown_flow() {
    let mut packets = Headers::new(true, true).segments(&payload(4000, 1), 1000);
    packets.insert(2, vec![1; 30]);
    assert_eq!(trains_of(&packets), [2, 1, 2]);
}

#[test]
fn a_pure_acknowledgement_lies_between_the_trains_of_its_flow_only() {
    let flow = Headers::new(true, true);
    let other = Headers {
        source: 2,
        ..flow.clone()
    };
    let data = flow.segments(&payload(4000, 1), 1000);
    let with = |packet: Vec<u8>| {
        let mut packets = data.clone();
        packets.insert(2, packet);
        trains_of(&packets)
    };
    assert_eq!(with(other.packet(b"")), [4, 1]);
    assert_eq!(with(flow.packet(b"")), [2, 1, 2]);
}

#[test]
fn lengths_that_contradict_the_packet_make_its_flow_unknown() {
    for is_tcp in [true, false] {
        for is_v4 in [true, false] {
            let packet = Headers::new(is_v4, is_tcp).packet(&payload(100, 1));
            for len in 0..packet.len() {
                assert_eq!(Shape::of(&packet[..len]), None);
            }
            assert!(Shape::of(&packet).is_some());
            assert_eq!(Shape::of(&[&packet[..], &[0]].concat()), None);
        }
    }
    let mut short_header = Headers::new(true, true).packet(&payload(100, 1));
    short_header[32] = 0x40;
    assert_eq!(Shape::of(&short_header), None);
    let mut udp_length = Headers::new(true, false).packet(&payload(100, 1));
    udp_length[25] -= 1;
    assert_eq!(Shape::of(&udp_length), None);
}
