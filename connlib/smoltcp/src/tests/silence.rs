//! Other ends that fall silent, or take nothing.

use super::{
    hostile::{opened, scaled},
    wire::*,
    *,
};
use convoy_packet::{
    packet::ICMPV4,
    segment::{ACK, SYN, Segment},
};

/// Lets time pass for a stack.
fn skip(stack: &Stack, time: Duration) {
    stack.shared.skip(time);
}

fn next_data(wire: &Wire) -> Segment {
    loop {
        let segment = parsed(&wire.receive()).1;
        if segment.payload_len > 0 {
            return segment;
        }
    }
}

fn discard_all(wire: &Wire) {
    let soon = Duration::from_millis(20);
    while is_ready_within(&wire.0, rustix::event::PollFlags::IN, soon) {
        wire.receive();
    }
}

/// Counts the minutes until the only connection ends, if the other end stays silent; three hours at most.
fn minutes_until_given_up(stack: &Stack, wire: &Wire) -> u32 {
    let mut minutes = 0;
    while stack.flows() > 0 && minutes < 180 {
        discard_all(wire);
        skip(stack, Duration::from_secs(60));
        minutes += 1;
    }
    minutes
}

#[tokio::test]
async fn an_end_that_vanishes_while_it_is_sent_something_is_given_up() {
    let (a, wire) = scene();
    let (mut stream, _) = opened(&a, &wire).await;
    stream.write_all(b"answer").await.unwrap();
    let minutes = minutes_until_given_up(&a, &wire);
    assert!((8..20).contains(&minutes), "{minutes}");
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(a.counters().timeouts, 1);
}

#[tokio::test]
async fn an_idle_connection_lives_as_long_as_probes_are_answered_and_no_longer() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    for _ in 0..2 * 60 {
        skip(&a, Duration::from_secs(121));
        assert_eq!(parsed(&wire.receive()).1.sequence, first.wrapping_sub(1));
        wire.send(&scaled(ACK, 512, 1, first, &[]));
        let question = [8, 0, 0, 0, 1, 2, 3, 4];
        wire.send(&packet(B, A, ICMPV4, &question, 2));
        while !wire.receive().ends_with(&question[4..]) {}
    }
    assert_eq!(a.flows(), 1);
    let minutes = minutes_until_given_up(&a, &wire);
    assert!((124..180).contains(&minutes), "{minutes}");
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn an_end_that_slept_for_an_hour_still_has_minutes_to_take_what_it_is_sent() {
    for is_end in [false, true] {
        let (a, wire) = scene();
        let (mut stream, first) = opened(&a, &wire).await;
        for _ in 0..60 {
            skip(&a, Duration::from_secs(60));
            discard_all(&wire);
        }
        match is_end {
            true => stream.shutdown().await.unwrap(),
            false => stream.write_all(b"x").await.unwrap(),
        }
        for _ in 0..7 {
            skip(&a, Duration::from_secs(60));
            discard_all(&wire);
        }
        wire.send(&scaled(ACK, 512, 1, first.wrapping_add(1), &[]));
        let question = [8, 0, 0, 0, 1, 2, 3, 4];
        wire.send(&packet(B, A, ICMPV4, &question, 2));
        while !wire.receive().ends_with(&question[4..]) {}
        assert_eq!(a.flows(), 1);
        let minutes = minutes_until_given_up(&a, &wire);
        assert!((124..180).contains(&minutes), "{minutes}");
    }
}

#[tokio::test]
async fn an_end_that_vanishes_before_it_acknowledges_ours_is_given_up() {
    let (a, wire) = scene();
    let (mut stream, _) = opened(&a, &wire).await;
    stream.shutdown().await.unwrap();
    let minutes = minutes_until_given_up(&a, &wire);
    assert!((8..20).contains(&minutes), "{minutes}");
}

#[tokio::test]
async fn a_window_that_was_closed_before_there_was_anything_to_send_is_probed() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let first = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    wire.send(&scaled(ACK, 0, 1, first, &[]));
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    stream.write_all(&[7; 500]).await.unwrap();
    for _ in 0..5 {
        skip(&a, Duration::from_secs(20));
        let probe = next_data(&wire);
        assert_eq!((probe.sequence, probe.payload_len), (first, 1));
        wire.send(&scaled(ACK, 0, 1, first, &[]));
    }
    wire.send(&scaled(ACK, 512, 1, first, &[]));
    assert_eq!(next_data(&wire).payload_len, 500);
}

#[tokio::test]
async fn what_was_dropped_behind_a_window_that_shrank_goes_again_once_it_opens() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.write_all(&[7; 4_000]).await.unwrap();
    assert_eq!(next_data(&wire).sequence, first);
    // Everything beyond 1,000 bytes was discarded.
    let kept = first.wrapping_add(1_000);
    for _ in 0..6 {
        wire.send(&scaled(ACK, 0, 1, kept, &[]));
        discard_all(&wire);
        skip(&a, Duration::from_secs(60));
    }
    discard_all(&wire);
    wire.send(&scaled(ACK, 512, 1, kept, &[]));
    let soon = Duration::from_secs(1);
    assert!(is_ready_within(&wire.0, rustix::event::PollFlags::IN, soon));
    assert_eq!(next_data(&wire).sequence, kept);
}
