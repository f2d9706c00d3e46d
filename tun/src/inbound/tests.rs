use super::*;
use crate::{
    pool::Pool,
    testing::{Headers, payload},
};

const BOTH: Coalesce = Coalesce {
    tcp: true,
    udp: true,
};

#[test]
fn a_batch_is_full_at_its_limit_of_packets() {
    let mut batch = batch(Coalesce::default());
    let packets = std::iter::repeat_n(Headers::new(true, true).packet(b"data"), 100);
    assert_eq!(fill(&mut batch, packets), MAX_BATCH_PACKETS);
    assert_eq!(batch.packets(), MAX_BATCH_PACKETS);
    assert_eq!(batch.bytes(), MAX_BATCH_PACKETS * 56);
}

#[test]
fn a_batch_ends_with_the_train_that_fills_a_super_packet() {
    let mut batch = batch(BOTH);
    let headers = Headers::new(true, true);
    let packets = headers.segments(&payload(49 * 1368, 1), 1368);
    assert_eq!(fill(&mut batch, packets), 47);
    assert_eq!(batch.0.trains.trains().len(), 1);
}

#[test]
fn short_trains_share_a_batch() {
    let mut batch = batch(BOTH);
    let headers = Headers::new(true, true);
    let packets = headers.segments(&payload(9_500, 1), 1000);
    let trains = std::iter::repeat_n(packets, 10).flatten();
    assert_eq!(fill(&mut batch, trains), 40);
}

#[test]
fn a_slot_that_is_not_committed_is_given_up() {
    let mut batch = batch(BOTH);
    let packets = Headers::new(true, true).segments(&payload(3000, 1), 1000);
    for packet in &packets {
        batch.slot(2000).unwrap().fill(0xee);
        let slot = batch.slot(packet.len() + 16).unwrap();
        slot[..packet.len()].copy_from_slice(packet);
        batch.commit(packet.len());
        batch.slot(60_000).unwrap().fill(0xee);
    }
    assert_eq!(batch.packets(), 3);
    let train = batch.0.trains.trains()[0];
    assert_eq!(train.packets, 3);
    let kept = batch
        .0
        .trains
        .packets_of(&train)
        .map(|kept| &batch.0.buffer[kept.start..kept.end]);
    assert!(kept.eq(packets.iter().map(Vec::as_slice)));
}

#[test]
fn reserved_slots_are_filled_together_and_those_not_committed_are_given_up() {
    let mut batch = batch(BOTH);
    let packets = Headers::new(true, true).segments(&payload(16_000, 1), 1000);
    assert!(packets.iter().all(|packet| batch.reserve(packet.len())));
    assert!(!batch.reserve(1), "sixteen at a time");
    for (slot, packet) in batch.slots().zip(&packets) {
        slot.copy_from_slice(packet);
    }
    for n in [0, 1, 5, 15] {
        assert_eq!(batch.reserved(n).unwrap(), packets[n]);
        batch.commit_reserved(n, packets[n].len());
    }
    batch.release();
    assert!(batch.reserved(0).is_none());
    let slot = batch.slot(packets[2].len()).unwrap();
    slot.copy_from_slice(&packets[2]);
    batch.commit(packets[2].len());
    let trains = batch.0.trains.trains().iter();
    let kept = trains.flat_map(|train| batch.0.trains.packets_of(train));
    let mut kept: Vec<_> = kept.map(|kept| kept.start..kept.end).collect();
    kept.sort_by_key(|kept| kept.start);
    let kept = kept.into_iter().map(|kept| &batch.0.buffer[kept]);
    assert!(kept.eq([0, 1, 5, 15, 2].map(|n| &packets[n][..])));
}

#[test]
fn no_more_slots_are_reserved_than_a_batch_has_room_for() {
    let mut batch = batch(Coalesce::default());
    let packet = Headers::new(true, true).packet(b"data");
    let mut committed = 0;
    loop {
        let reserved = (0..20).take_while(|_| batch.reserve(packet.len())).count();
        for n in 0..reserved {
            batch.reserved(n).unwrap().copy_from_slice(&packet);
            batch.commit_reserved(n, packet.len());
        }
        batch.release();
        committed += reserved;
        if reserved == 0 {
            break;
        }
    }
    assert_eq!(committed, MAX_BATCH_PACKETS);
    let mut batch = self::batch(BOTH);
    let longest = (0..20).take_while(|_| batch.reserve(MAX_SLOT)).count();
    assert_eq!(longest, 3, "256 KiB");
}

#[test]
#[should_panic(expected = "within its slot")]
fn more_than_a_reserved_slot_cannot_be_committed() {
    let mut batch = batch(BOTH);
    assert!(batch.reserve(100) && batch.reserve(100));
    batch.commit_reserved(0, 101);
}

#[test]
fn an_empty_batch_has_a_slot_of_any_length_up_to_the_longest() {
    for len in [0, 1, 1420, MAX_SLOT] {
        assert_eq!(batch(BOTH).slot(len).unwrap().len(), len);
    }
    assert!(batch(BOTH).slot(MAX_SLOT + 1).is_none());
}

#[test]
fn a_batch_is_full_when_the_next_slot_does_not_fit() {
    let mut batch = batch(Coalesce::default());
    let packets = std::iter::repeat_n(vec![1; MAX_PACKET], 10);
    assert_eq!(fill(&mut batch, packets), 3);
    assert!(batch.slot(1420).is_some());
}

#[test]
#[should_panic(expected = "within its slot")]
fn more_than_the_slot_cannot_be_committed() {
    let mut batch = batch(BOTH);
    batch.slot(100);
    batch.commit(101);
}

fn batch(coalesce: Coalesce) -> InboundBatch {
    let mut batch = InboundBatch(Pool::new(1, InboundBuffer::new).take().unwrap());
    batch.0.clear(coalesce);
    batch
}

/// Fills the batch; returns the number of packets in it.
fn fill(batch: &mut InboundBatch, packets: impl IntoIterator<Item = Vec<u8>>) -> usize {
    for packet in packets {
        let Some(slot) = batch.slot(packet.len() + 31) else {
            break;
        };
        slot[..packet.len()].copy_from_slice(&packet);
        batch.commit(packet.len());
    }
    batch.packets()
}
