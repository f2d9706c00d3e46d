use proptest::prelude::*;

use super::*;
use crate::{
    pool::Pool,
    testing::{Headers, any_headers, payload},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_packet_comes_out_whole_however_its_neighbours_are_padded(
        reads in proptest::collection::vec((any_headers(), 0..9000usize, 1..2000usize), 1..10),
        padding in proptest::collection::vec(0..=MAX_PADDING, 1..20),
    ) {
        let mut batch = batch();
        let mut expected = Vec::new();
        for (headers, len, segment_len) in reads {
            let payload = payload(len.min(segment_len * 40), headers.ttl);
            let (vnet, packet) = headers.super_packet(&payload, segment_len);
            prop_assume!(read(&mut batch, vnet, &packet));
            expected.extend(headers.segments(&payload, segment_len));
        }
        prop_assert_eq!(batch.packets(), expected.len());
        let mut padding = padding.iter().cycle();
        for (index, packet) in expected.iter().enumerate() {
            prop_assert_eq!(batch.remaining(), expected.len() - index);
            let pad = *padding.next().unwrap();
            let mut handed_out = batch.next().unwrap();
            prop_assert_eq!(handed_out.bytes(), &packet[..]);
            let padded = [&packet[..], &[0; MAX_PADDING][..pad]].concat();
            prop_assert_eq!(handed_out.padded(packet.len() + pad), &padded[..]);
            prop_assert_eq!(handed_out.padded(packet.len() + pad / 2).len(), packet.len() + pad / 2);
            prop_assert_eq!(handed_out.padded(packet.len() + pad), &padded[..]);
        }
        prop_assert!(batch.next().is_none());
    }
}

#[test]
fn a_super_packet_of_more_segments_than_sums_are_kept_for_is_cut_all_the_same() {
    let headers = Headers::new(true, true);
    let payload = payload(3 * MAX_SUMS, 5);
    let (vnet, packet) = headers.super_packet(&payload, 2);
    let mut batch = batch();
    for _ in 0..2 {
        assert!(read(&mut batch, vnet, &packet));
    }
    let segments = headers.segments(&payload, 2);
    assert_eq!(batch.packets(), 2 * segments.len());
    for segment in segments.iter().chain(&segments) {
        assert_eq!(batch.next().unwrap().bytes(), segment);
    }
}

#[test]
fn a_malformed_read_is_counted_and_takes_no_room() {
    let mut batch = batch();
    let nonsense = VnetHeader {
        gso_type: 77,
        ..VnetHeader::default()
    };
    for _ in 0..1000 {
        assert!(read(&mut batch, nonsense, &[0x45; 60_000]));
    }
    assert_eq!((batch.malformed(), batch.packets()), (1000, 0));
    assert!(batch.next().is_none());
}

#[test]
fn a_read_shorter_than_the_virtio_header_is_malformed() {
    let mut batch = batch();
    for len in 0..=VNET_LEN {
        assert!(batch.0.room(VNET_LEN).is_some());
        batch.0.accept(len, VNET_LEN);
    }
    assert_eq!(
        (batch.malformed(), batch.packets()),
        (VNET_LEN as u32 + 1, 0)
    );
}

#[test]
fn there_is_room_until_a_read_of_any_length_would_not_fit() {
    let mut batch = batch();
    let headers = Headers::new(true, false);
    let longest = headers.packet(&payload(MAX_PACKET - headers.len(), 1));
    let mut reads = 0;
    while read(&mut batch, VnetHeader::default(), &longest) {
        reads += 1;
    }
    assert_eq!(reads, 3);
    while let Some(mut packet) = batch.next() {
        assert_eq!(
            packet.padded(MAX_PACKET + MAX_PADDING)[..MAX_PACKET],
            longest
        );
    }
}

#[test]
fn there_is_room_for_no_more_reads_than_packets() {
    let mut batch = batch();
    let packet = Headers::new(false, false).packet(b"short");
    let reads = (0..)
        .take_while(|_| read(&mut batch, VnetHeader::default(), &packet))
        .count();
    assert_eq!(reads, MAX_BATCH_PACKETS);
    assert_eq!(
        batch.packets_per_read().collect::<Vec<_>>(),
        [1; MAX_BATCH_PACKETS]
    );
}

#[test]
fn without_virtio_headers_a_read_is_a_packet() {
    let mut batch = batch();
    let packet = Headers::new(true, true).packet(b"plain");
    batch.0.room(0).unwrap()[..packet.len()].copy_from_slice(&packet);
    batch.0.accept(packet.len(), 0);
    assert_eq!(batch.next().unwrap().bytes(), packet);
}

#[test]
#[should_panic(expected = "out of range")]
fn padding_beyond_fifteen_bytes_is_refused() {
    let mut batch = batch();
    let packet = Headers::new(true, true).packet(b"plain");
    read(&mut batch, VnetHeader::default(), &packet);
    batch.next().unwrap().padded(packet.len() + MAX_PADDING + 1);
}

fn batch() -> OutboundBatch {
    OutboundBatch(Pool::new(1, OutboundBuffer::new).take().unwrap())
}

/// Feeds the batch a read; returns whether there was room.
fn read(batch: &mut OutboundBatch, vnet: VnetHeader, packet: &[u8]) -> bool {
    let Some(room) = batch.0.room(VNET_LEN) else {
        return false;
    };
    room[..VNET_LEN].copy_from_slice(&vnet.to_bytes());
    room[VNET_LEN..VNET_LEN + packet.len()].copy_from_slice(packet);
    batch.0.accept(VNET_LEN + packet.len(), VNET_LEN);
    true
}
