//! Ends of streams and resets that are late, early or forged.

use super::{
    hostile::{opened, scaled},
    wire::*,
    *,
};
use convoy_packet::segment::{ACK, FIN, RST, Segment};

/// The next segment of the stack that acknowledges up to this number.
pub(super) fn acknowledged(wire: &Wire, number: u32) -> Segment {
    loop {
        let segment = parsed(&wire.receive()).1;
        if segment.acknowledged == number {
            return segment;
        }
    }
}

pub(super) async fn read_to_end(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.unwrap();
    bytes
}

#[tokio::test]
async fn an_end_that_has_overtaken_data_counts_once_that_has_come() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(ACK | FIN, 512, 5, first, b"last"));
    wire.send(&scaled(ACK, 512, 1, first, b"more"));
    acknowledged(&wire, 10);
    assert_eq!(read_to_end(&mut stream).await, b"morelast");
}

#[tokio::test]
async fn an_end_behind_data_that_was_received_before_counts() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(ACK, 512, 1, first, b"all"));
    acknowledged(&wire, 4);
    // The acknowledgement was lost, and the other end has closed meanwhile.
    wire.send(&scaled(ACK | FIN, 512, 1, first, b"all"));
    acknowledged(&wire, 5);
    assert_eq!(read_to_end(&mut stream).await, b"all");
}

#[tokio::test]
async fn an_end_with_an_older_acknowledgement_counts() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.write_all(b"answer").await.unwrap();
    assert_eq!(parsed(&wire.receive()).1.payload_len, 6);
    wire.send(&scaled(ACK, 512, 1, first.wrapping_add(6), &[]));
    wire.send(&scaled(ACK | FIN, 512, 1, first, &[]));
    acknowledged(&wire, 2);
    assert_eq!(read_to_end(&mut stream).await, b"");
}

#[tokio::test]
async fn both_ends_that_close_at_once_are_rid_of_the_connection_although_one_end_comes_early() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.shutdown().await.unwrap();
    assert!(parsed(&wire.receive()).1.has(FIN));
    wire.send(&scaled(ACK | FIN, 512, 3, first, b"st"));
    wire.send(&scaled(ACK, 512, 1, first, b"la"));
    acknowledged(&wire, 6);
    assert_eq!(read_to_end(&mut stream).await, b"last");
    wire.send(&scaled(ACK, 512, 6, first.wrapping_add(1), &[]));
    until(|| a.flows() == 0).await;
}

#[tokio::test]
async fn an_end_that_is_repeated_is_answered_as_before_once_the_connection_is_gone() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.shutdown().await.unwrap();
    assert!(parsed(&wire.receive()).1.has(FIN));
    let end = scaled(ACK | FIN, 512, 1, first.wrapping_add(1), &[]);
    wire.send(&end);
    let last = acknowledged(&wire, 2);
    until(|| a.flows() == 0).await;
    wire.send(&end);
    assert_eq!(parsed(&wire.receive()).1, last);
}

#[tokio::test]
async fn what_follows_the_end_of_a_stream_is_no_part_of_it() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(ACK | FIN, 512, 1, first, b"all"));
    acknowledged(&wire, 5);
    stream.write_all(b"answer").await.unwrap();
    assert_eq!(parsed(&wire.receive()).1.payload_len, 6);
    // Its acknowledgement counts all the same.
    wire.send(&scaled(ACK, 512, 5, first.wrapping_add(6), b"junk"));
    delivered(&mut stream).await;
    assert_eq!(read_to_end(&mut stream).await, b"all");
    assert_eq!(within(stream.read(&mut [0])).await.unwrap(), 0);
}

#[tokio::test]
async fn what_follows_an_end_is_answered_with_how_far_the_stream_was_received() {
    let (a, wire) = scene();
    let (_stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(ACK | FIN, 512, 5, first, b"last"));
    let gap = parsed(&wire.receive()).1;
    wire.send(&scaled(ACK, 512, 9, first, b"junk"));
    assert_eq!(parsed(&wire.receive()).1, gap);
    wire.send(&scaled(ACK, 512, 1, first, b"more"));
    let end = acknowledged(&wire, 10);
    wire.send(&scaled(ACK, 512, 10, first, b"junk"));
    assert_eq!(parsed(&wire.receive()).1, end);
}

#[tokio::test]
async fn what_follows_an_end_that_has_overtaken_data_is_no_part_of_the_stream() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(ACK | FIN, 512, 5, first, b"last"));
    wire.send(&scaled(ACK, 512, 9, first, b"junk"));
    wire.send(&scaled(ACK, 512, 1, first, b"more"));
    acknowledged(&wire, 10);
    assert_eq!(read_to_end(&mut stream).await, b"morelast");
}

#[tokio::test]
async fn a_reset_that_says_why_ends_a_connection_whose_other_end_has_closed() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(ACK | FIN, 512, 1, first, b"all"));
    acknowledged(&wire, 5);
    wire.send(&scaled(RST | ACK, 0, 5, first, b"reset by operator"));
    until(|| a.flows() == 0).await;
    let error = within(stream.write_all(b"answer")).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Waits until all that was written has been acknowledged.
async fn delivered(stream: &mut Stream) {
    let Stream::Other(stream) = stream else {
        unreachable!("it is of a stack");
    };
    within(std::future::poll_fn(|context| {
        stream.poll_delivered(context)
    }))
    .await;
}

#[tokio::test]
async fn a_reset_within_the_window_ends_nothing_until_it_has_the_number_expected() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    for guess in [2, 1_000, 60_000] {
        wire.send(&scaled(RST, 0, guess, 0, &[]));
        let answer = parsed(&wire.receive()).1;
        let answer = (answer.flags, answer.sequence, answer.acknowledged);
        assert_eq!(answer, (ACK, first, 1), "{guess}");
    }
    for outside in [0, 1 << 30, u32::MAX / 2 + 7, u32::MAX] {
        wire.send(&scaled(RST, 0, outside, 0, &[]));
    }
    wire.send(&scaled(ACK, 512, 1, first, b"x"));
    assert_eq!(within(stream.read_u8()).await.unwrap(), b'x');
    assert_eq!(acknowledged(&wire, 2).flags, ACK);
    wire.send(&scaled(RST, 0, 2, 0, &[]));
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}
