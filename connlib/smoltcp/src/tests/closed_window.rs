//! A sender whose window is closed, and that probes it.

use super::{
    hostile::{opened, scaled},
    wire::*,
    *,
};
use convoy_packet::{counters::Dropped, segment::ACK};

/// As the stack's SYN announces it.
pub(super) const SCALE: u32 = 3;
const PIECE: usize = 20_000;
const PROBES: usize = 3;

#[tokio::test]
async fn probes_of_a_closed_window_are_answered_and_count_as_no_drops() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    let mut next = 1_u32;
    let mut room = PIECE;
    while room > 0 {
        let piece = vec![7; room.min(PIECE)];
        wire.send(&scaled(ACK, 512, next, first, &piece));
        next += piece.len() as u32;
        room = loop {
            let answer = parsed(&wire.receive()).1;
            if answer.acknowledged == next {
                break usize::from(answer.window) << SCALE;
            }
        };
    }
    // A closed window has room for less than its unit.
    let mut refused = 0;
    while refused < PROBES {
        wire.send(&scaled(ACK, 512, next, first, &[7]));
        let answer = parsed(&wire.receive()).1;
        assert_eq!(answer.window, 0);
        refused += usize::from(answer.acknowledged == next);
        next = answer.acknowledged;
    }
    let mut received = vec![0; next as usize - 1];
    within(stream.read_exact(&mut received)).await.unwrap();
    assert!(received.iter().all(|byte| *byte == 7));
    // It may be sent again before the news of the open window has come.
    wire.send(&scaled(ACK, 512, next, first, &[8]));
    assert_eq!(within(stream.read_u8()).await.unwrap(), 8);
    let counters = a.counters();
    let drops = Dropped::ALL.map(|reason| counters.dropped(reason));
    assert_eq!(drops, [0; Dropped::ALL.len()], "{counters:?}");
}
