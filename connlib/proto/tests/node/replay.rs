//! The replay window: accepts late datagrams, rejects repeated ones.

use std::collections::HashSet;

use crate::common::*;
use convoy_proto::counters::DropReason;

/// The counters that the window holds behind the newest, as in the reference.
const WINDOW_BEHIND: usize = 8128;

#[test]
fn the_whole_window_may_be_reordered_but_not_repeated() {
    const NEWEST: usize = WINDOW_BEHIND + 999;
    let mut receiver = Receiver::of(NEWEST + 1);
    receiver.receives(NEWEST, Outcome::Delivered);
    for late in (NEWEST - WINDOW_BEHIND..NEWEST).rev() {
        receiver.receives(late, Outcome::Delivered);
    }
    for behind in 0..NEWEST - WINDOW_BEHIND {
        receiver.receives(behind, Outcome::BehindWindow);
    }
    for counter in NEWEST - WINDOW_BEHIND..=NEWEST {
        receiver.receives(counter, Outcome::Replay);
    }
}

#[test]
fn the_window_has_sharp_edges() {
    const NEWEST: usize = WINDOW_BEHIND + 500;
    let mut receiver = Receiver::of(NEWEST + 2);
    receiver.receives(NEWEST, Outcome::Delivered);
    receiver.receives(NEWEST - WINDOW_BEHIND + 1, Outcome::Delivered);
    receiver.receives(NEWEST - WINDOW_BEHIND, Outcome::Delivered);
    receiver.receives(NEWEST - WINDOW_BEHIND - 1, Outcome::BehindWindow);
    receiver.receives(NEWEST - WINDOW_BEHIND, Outcome::Replay);
    // One counter later, the edge is one counter later.
    receiver.receives(NEWEST + 1, Outcome::Delivered);
    receiver.receives(NEWEST - WINDOW_BEHIND, Outcome::BehindWindow);
    receiver.receives(NEWEST + 1, Outcome::Replay);
}

#[test]
fn an_unauthentic_datagram_does_not_move_the_window() {
    const AHEAD: usize = WINDOW_BEHIND + 76;
    let mut receiver = Receiver::of(AHEAD + 1);
    receiver.receives(0, Outcome::Delivered);
    let forged = &mut receiver.wire[AHEAD];
    *forged.last_mut().unwrap() ^= 1;
    receiver.receives(AHEAD, Outcome::BadTag);
    receiver.receives(1, Outcome::Delivered);
    *receiver.wire[AHEAD].last_mut().unwrap() ^= 1;
    receiver.receives(AHEAD, Outcome::Delivered);
    receiver.receives(2, Outcome::BehindWindow);
}

/// Jumps by lengths around those of the window and of its blocks, repeatedly, so that jumps begin at
/// many places in both; compares each result with a list of the counters received.
#[test]
fn the_window_is_right_after_jumps_of_every_length() {
    const JUMPS: [usize; 15] = [
        1, 2, 63, 64, 65, 127, 128, 500, 8065, 8127, 8128, 8129, 8192, 8256, 16_385,
    ];
    const ROUNDS: usize = 2;
    let last = ROUNDS * JUMPS.iter().sum::<usize>();
    let mut receiver = Receiver::of(last + 1);
    let mut newest = 0;
    receiver.receives(newest, Outcome::Delivered);
    let mut seen = HashSet::from([newest]);
    for (round, jump) in JUMPS.repeat(ROUNDS).into_iter().enumerate() {
        newest += jump;
        receiver.receives(newest, Outcome::Delivered);
        seen.insert(newest);
        for counter in newest.saturating_sub(WINDOW_BEHIND + 65)..=newest {
            // Withhold every third until after the next jump.
            if (counter + round).is_multiple_of(3) {
                continue;
            }
            let expected = match newest - counter {
                0..=WINDOW_BEHIND if seen.insert(counter) => Outcome::Delivered,
                0..=WINDOW_BEHIND => Outcome::Replay,
                _ => Outcome::BehindWindow,
            };
            receiver.receives(counter, expected);
        }
    }
    assert_eq!(newest, last);
}

/// The outcome of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Delivered,
    Replay,
    BehindWindow,
    BadTag,
}

/// A host with a session, and the next datagrams of its peer, in order.
struct Receiver {
    pair: Pair,
    wire: Vec<Vec<u8>>,
}

impl Receiver {
    fn of(datagrams: usize) -> Self {
        let mut pair = Pair::connected();
        let mut wire = Vec::new();
        for _ in 0..datagrams {
            pair.a_sends(b"in another order");
            wire.extend(pair.a.take_wire(pair.now));
        }
        Self { pair, wire }
    }

    /// Checks that the datagram has exactly this outcome, by exactly one counter.
    #[track_caller]
    fn receives(&mut self, datagram: usize, expected: Outcome) {
        const DROPS: [(DropReason, Outcome); 3] = [
            (DropReason::InboundReplay, Outcome::Replay),
            (DropReason::InboundBehindWindow, Outcome::BehindWindow),
            (DropReason::InboundBadTag, Outcome::BadTag),
        ];
        let Pair { a, b, now } = &mut self.pair;
        let before = DROPS.map(|(reason, _)| b.drops(reason));
        b.receive(&self.wire[datagram], a.address, *now);
        let mut outcomes = vec![Outcome::Delivered; std::mem::take(&mut b.delivered).len()];
        for ((reason, outcome), before) in DROPS.into_iter().zip(before) {
            let more = b.drops(reason) - before;
            outcomes.extend(vec![outcome; more as usize]);
        }
        assert_eq!(outcomes, [expected], "datagram {datagram}");
    }
}
