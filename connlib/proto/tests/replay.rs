//! The replay window: accepts late datagrams, rejects repeated ones.

mod common;

use std::collections::HashSet;

use common::*;
use convoy_proto::counters::DropReason;

/// The counters that boringtun's window of 1,024 holds behind the newest.
const WINDOW_BEHIND: usize = 1023;

#[test]
fn the_whole_window_may_be_reordered_but_not_repeated() {
    let mut receiver = Receiver::of(2000);
    receiver.receives(1999, Outcome::Delivered);
    for late in (1999 - WINDOW_BEHIND..1999).rev() {
        receiver.receives(late, Outcome::Delivered);
    }
    for behind in 0..1999 - WINDOW_BEHIND {
        receiver.receives(behind, Outcome::BehindWindow);
    }
    for counter in 1999 - WINDOW_BEHIND..2000 {
        receiver.receives(counter, Outcome::Replay);
    }
}

#[test]
fn the_window_has_sharp_edges() {
    let mut receiver = Receiver::of(2000);
    receiver.receives(1500, Outcome::Delivered);
    receiver.receives(1500 - WINDOW_BEHIND + 1, Outcome::Delivered);
    receiver.receives(1500 - WINDOW_BEHIND, Outcome::Delivered);
    receiver.receives(1500 - WINDOW_BEHIND - 1, Outcome::BehindWindow);
    receiver.receives(1500 - WINDOW_BEHIND, Outcome::Replay);
    // One counter later, the edge is one counter later.
    receiver.receives(1501, Outcome::Delivered);
    receiver.receives(1500 - WINDOW_BEHIND, Outcome::BehindWindow);
    receiver.receives(1501, Outcome::Replay);
}

#[test]
fn an_unauthentic_datagram_does_not_move_the_window() {
    let mut receiver = Receiver::of(1100);
    receiver.receives(0, Outcome::Delivered);
    let forged = &mut receiver.wire[1099];
    *forged.last_mut().unwrap() ^= 1;
    receiver.receives(1099, Outcome::BadTag);
    receiver.receives(1, Outcome::Delivered);
    *receiver.wire[1099].last_mut().unwrap() ^= 1;
    receiver.receives(1099, Outcome::Delivered);
    receiver.receives(2, Outcome::BehindWindow);
}

/// Jumps by lengths around those of the bitmap and of its words, repeatedly, so that jumps begin at
/// many places in both; compares each result with a list of the counters received.
#[test]
fn the_window_is_right_after_jumps_of_every_length() {
    const JUMPS: [usize; 15] = [
        1, 2, 63, 64, 65, 127, 128, 500, 961, 1022, 1023, 1024, 1025, 1088, 2049,
    ];
    const ROUNDS: usize = 5;
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
