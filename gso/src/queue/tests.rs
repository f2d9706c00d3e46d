use proptest::prelude::*;

use super::*;

#[test]
fn equal_lengths_to_one_destination_share_a_batch() {
    let mut queue = GsoQueue::default();
    for byte in 0..3 {
        queue.append(&destination(1), &[byte; 100]).unwrap();
    }
    let batch = queue.front().unwrap();
    assert_eq!((batch.segments(), batch.segment_len()), (3, 100));
    assert_eq!(drain(&mut queue).len(), 1);
}

#[test]
fn a_shorter_segment_seals_the_batch() {
    let sends = sends_of(&[(1, 100), (1, 60), (1, 60)]);
    assert_eq!(sends, [vec![100, 60], vec![60]]);
}

#[test]
fn a_longer_segment_opens_a_new_batch() {
    assert_eq!(sends_of(&[(1, 60), (1, 100)]), [vec![60], vec![100]]);
}

#[test]
fn another_length_in_between_keeps_a_later_datagram_out_of_the_older_batch() {
    assert_eq!(
        sends_of(&[(1, 60), (1, 100), (1, 60), (1, 60)]),
        [vec![60], vec![100, 60], vec![60]]
    );
}

#[test]
fn another_destination_in_between_does_not_end_a_batch() {
    assert_eq!(
        sends_of(&[(1, 60), (2, 60), (1, 60)]),
        [vec![60, 60], vec![60]]
    );
}

#[test]
fn a_batch_holds_at_most_64_segments() {
    let lengths: Vec<_> = sends_of(&[(1, 50); 130]).iter().map(Vec::len).collect();
    assert_eq!(lengths, [64, 64, 2]);
}

#[test]
fn a_batch_holds_at_most_one_udp_payload() {
    let lengths: Vec<_> = sends_of(&[(1, 1452); 46]).iter().map(Vec::len).collect();
    assert_eq!(lengths, [45, 1]);
}

#[test]
fn another_source_or_mark_opens_a_new_batch() {
    let mut queue = GsoQueue::default();
    let plain = destination(1);
    let marked = Destination { ecn: 1, ..plain };
    let pinned = Destination {
        source: Some([192, 0, 2, 9].into()),
        ..plain
    };
    for to in [plain, marked, pinned, pinned] {
        queue.append(&to, &[0; 60]).unwrap();
    }
    let segments: Vec<_> = drain(&mut queue)
        .into_iter()
        .map(|(_, s)| s.len())
        .collect();
    assert_eq!(segments, [1, 1, 2]);
}

#[test]
fn a_full_queue_hands_the_datagram_back_and_has_room_after_the_flush() {
    let mut queue = GsoQueue::default();
    let mut appended = 0;
    while queue.append(&destination(1), &[0; 60_000]).is_ok() {
        appended += 1;
    }
    assert_eq!(appended, QUEUE_BYTES / LARGE);
    assert!(!queue.has_room());
    queue.pop_front();
    assert!(queue.has_room());
    assert_eq!(queue.append(&destination(1), &[0; 60_000]), Ok(()));
}

#[test]
fn a_partly_sent_batch_is_not_extended() {
    let mut queue = GsoQueue::default();
    queue.append(&destination(1), &[0; 60]).unwrap();
    queue.append(&destination(1), &[0; 60]).unwrap();
    queue.front().unwrap().advance();
    queue.append(&destination(1), &[0; 60]).unwrap();
    assert_eq!(queue.front().unwrap().segments(), 1);
    assert_eq!(drain(&mut queue).len(), 2);
}

#[test]
fn an_oversized_datagram_is_refused() {
    let mut queue = GsoQueue::default();
    let refused = queue.append(&destination(1), &[0; MAX_UDP_PAYLOAD + 1]);
    assert_eq!(refused, Err(NotAppended));
    assert_eq!(queue.append(&destination(1), &[0; MAX_UDP_PAYLOAD]), Ok(()));
}

proptest! {
    /// Datagrams to one address leave in the order of appending, byte for byte, in batches that the
    /// kernel can cut back into the same datagrams.
    #[test]
    fn datagrams_to_one_address_leave_in_order(
        appends in prop::collection::vec((0u8..4, 0u8..2, 1usize..1500), 0..400),
        flush_every in 1usize..200,
    ) {
        let mut queue = GsoQueue::default();
        let mut expected: HashMap<SocketAddr, Vec<Vec<u8>>> = HashMap::new();
        let mut left: HashMap<SocketAddr, Vec<Vec<u8>>> = HashMap::new();
        let mut flush = |queue: &mut GsoQueue| {
            for (to, segments) in drain(queue) {
                left.entry(to.to).or_default().extend(segments);
            }
        };
        for (n, (to, ecn, len)) in appends.into_iter().enumerate() {
            // Use few distinct lengths, so that batches form.
            let len = len.next_multiple_of(300);
            let datagram: Vec<u8> = (0..len).map(|i| (i + n) as u8).collect();
            let to = Destination { ecn, ..destination(to) };
            if queue.append(&to, &datagram).is_err() {
                flush(&mut queue);
                queue.append(&to, &datagram).expect("an empty queue takes any datagram");
            }
            expected.entry(to.to).or_default().push(datagram);
            if n % flush_every == 0 {
                flush(&mut queue);
            }
        }
        flush(&mut queue);
        prop_assert_eq!(expected, left);
        prop_assert!(queue.newest.is_empty(), "an empty queue remembers no address");
    }
}

fn destination(n: u8) -> Destination {
    Destination {
        to: ([192, 0, 2, n], 51820).into(),
        source: None,
        ecn: 0,
    }
}

/// Appends `(destination, length)` pairs; returns the segment lengths of each send.
fn sends_of(appends: &[(u8, usize)]) -> Vec<Vec<usize>> {
    let mut queue = GsoQueue::default();
    for &(to, len) in appends {
        queue.append(&destination(to), &vec![0; len]).unwrap();
    }
    drain(&mut queue)
        .into_iter()
        .map(|(_, segments)| segments.iter().map(Vec::len).collect())
        .collect()
}

/// Empties the queue, cuts each batch as the kernel would, and checks the bounds of a send.
fn drain(queue: &mut GsoQueue) -> Vec<(Destination, Vec<Vec<u8>>)> {
    let mut sends = Vec::new();
    while let Some(batch) = queue.front() {
        assert!(batch.segments() <= MAX_SEGMENTS && batch.unsent().len() <= MAX_UDP_PAYLOAD);
        let segments = batch.unsent().chunks(batch.segment_len());
        sends.push((batch.destination, segments.map(<[u8]>::to_vec).collect()));
        queue.pop_front();
    }
    sends
}
