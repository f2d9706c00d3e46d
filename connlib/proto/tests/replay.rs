//! The replay window: what is late is borne, what is repeated is not.

mod common;

use std::collections::HashSet;

use common::*;
use convoy_proto::counters::DropReason;

/// boringtun's window is 1,024 counters: the newest, and so many behind it.
const BORNE: usize = 1023;

#[test]
fn so_much_reordering_is_borne_and_no_repetition() {
    let mut receiver = Receiver::of(2000);
    receiver.hears(1999, Outcome::Delivered);
    for late in (1999 - BORNE..1999).rev() {
        receiver.hears(late, Outcome::Delivered);
    }
    for behind in 0..1999 - BORNE {
        receiver.hears(behind, Outcome::BehindWindow);
    }
    for seen in 1999 - BORNE..2000 {
        receiver.hears(seen, Outcome::Replay);
    }
}

#[test]
fn the_window_has_sharp_edges() {
    let mut receiver = Receiver::of(2000);
    receiver.hears(1500, Outcome::Delivered);
    receiver.hears(1500 - BORNE + 1, Outcome::Delivered);
    receiver.hears(1500 - BORNE, Outcome::Delivered);
    receiver.hears(1500 - BORNE - 1, Outcome::BehindWindow);
    receiver.hears(1500 - BORNE, Outcome::Replay);
    // One further on, the edge is one further on.
    receiver.hears(1501, Outcome::Delivered);
    receiver.hears(1500 - BORNE, Outcome::BehindWindow);
    receiver.hears(1501, Outcome::Replay);
}

#[test]
fn a_datagram_that_does_not_authenticate_moves_no_edge() {
    let mut receiver = Receiver::of(1100);
    receiver.hears(0, Outcome::Delivered);
    let forged = &mut receiver.wire[1099];
    *forged.last_mut().unwrap() ^= 1;
    receiver.hears(1099, Outcome::BadTag);
    receiver.hears(1, Outcome::Delivered);
    *receiver.wire[1099].last_mut().unwrap() ^= 1;
    receiver.hears(1099, Outcome::Delivered);
    receiver.hears(2, Outcome::BehindWindow);
}

/// Jumps about the lengths of the bitmap and of its words, again and again, so that they begin at
/// every place in both; each is compared with a list of what was heard.
#[test]
fn the_window_is_right_after_jumps_of_every_length() {
    const JUMPS: [usize; 15] = [
        1, 2, 63, 64, 65, 127, 128, 500, 961, 1022, 1023, 1024, 1025, 1088, 2049,
    ];
    const ROUNDS: usize = 5;
    let last = ROUNDS * JUMPS.iter().sum::<usize>();
    let mut receiver = Receiver::of(last + 1);
    let mut newest = 0;
    receiver.hears(newest, Outcome::Delivered);
    let mut heard = HashSet::from([newest]);
    for (round, jump) in JUMPS.repeat(ROUNDS).into_iter().enumerate() {
        newest += jump;
        receiver.hears(newest, Outcome::Delivered);
        heard.insert(newest);
        for counter in newest.saturating_sub(BORNE + 65)..=newest {
            // Every third stays unheard until after the next jump.
            if (counter + round).is_multiple_of(3) {
                continue;
            }
            let expected = match newest - counter {
                0..=BORNE if heard.insert(counter) => Outcome::Delivered,
                0..=BORNE => Outcome::Replay,
                _ => Outcome::BehindWindow,
            };
            receiver.hears(counter, expected);
        }
    }
    assert_eq!(newest, last);
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Delivered,
    Replay,
    BehindWindow,
    BadTag,
}

/// A host with a session, and the next datagrams of its peer by their order.
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

    /// Exactly this happens to the datagram, and one counter says so.
    #[track_caller]
    fn hears(&mut self, datagram: usize, expected: Outcome) {
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
