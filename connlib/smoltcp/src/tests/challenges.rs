//! Segments in an open connection that may be forged, and what answers them (RFC 5961).

use super::{
    closed_window::SCALE,
    closing::acknowledged,
    hostile::{opened, scaled},
    wire::*,
};
use convoy_packet::segment::{ACK, RST, SYN, Segment};

/// Segments that are challenged, whatever number is expected up to 1,000.
fn doubtful() -> [Vec<u8>; 2] {
    [
        scaled(RST, 0, 2_000, 0, &[]),
        scaled(SYN, 0, 7_000_000, 0, &[]),
    ]
}

#[tokio::test]
async fn challenges_announce_the_window_announced_before() {
    let (a, wire) = scene();
    let (_stream, first) = opened(&a, &wire).await;
    for doubtful in doubtful() {
        wire.send(&doubtful);
        // Only the SYN-ACK has announced one so far, without a scale.
        let answer = acknowledged(&wire, 1);
        assert!(answer.window >= u16::MAX >> SCALE, "{answer:?}");
    }
    wire.send(&scaled(ACK, 512, 1, first, &[7; 800]));
    let before = acknowledged(&wire, 801);
    for doubtful in doubtful() {
        wire.send(&doubtful);
        assert_eq!(parsed(&wire.receive()).1, before);
    }
}

#[tokio::test]
async fn challenges_between_data_take_no_window_back() {
    let (a, wire) = scene();
    let (_stream, first) = opened(&a, &wire).await;
    let mut edge = 0;
    let mut check = |answer: &Segment| {
        let announced = answer.acknowledged + (u32::from(answer.window) << SCALE);
        // By less than the unit of its scale (RFC 7323 §2.4).
        assert!(announced + (1 << SCALE) > edge, "{edge} {answer:?}");
        edge = edge.max(announced);
    };
    for index in 0..100 {
        let sequence = 1 + 7 * index;
        wire.send(&scaled(ACK, 512, sequence, first, &[7; 7]));
        wire.send(&doubtful()[index as usize % 2]);
        loop {
            let answer = parsed(&wire.receive()).1;
            check(&answer);
            if answer.acknowledged == sequence + 7 {
                break;
            }
        }
    }
    assert!(edge > u32::from(u16::MAX), "{edge}");
}
