mod histories;
mod mistakes;

use super::*;

const MSS: u32 = 1_000;
const FIRST: u32 = u32::MAX - 20_000;
const ROUND_TRIP: i64 = 20_000;

/// A sender in the hands of a test, which counts from the first byte.
struct Trace {
    sending: Sending,
    now: i64,
}

impl Trace {
    fn new() -> Self {
        Self {
            sending: Sending::new(MSS, FIRST, 0, Some(ROUND_TRIP)),
            now: 0,
        }
    }

    fn wait(&mut self, time: i64) {
        self.now += time;
    }

    /// Sends up to this byte, a segment every 100 µs or so.
    fn send(&mut self, end: u32) {
        let mut at = self.sending.next().wrapping_sub(FIRST);
        while at < end {
            at = (at + MSS).min(end);
            self.wait(101);
            self.sending.sent(self.now, FIRST.wrapping_add(at));
        }
    }

    fn acknowledge(&mut self, number: u32, blocks: &[(u32, u32)]) -> bool {
        let shift =
            |(start, end): &(u32, u32)| (FIRST.wrapping_add(*start), FIRST.wrapping_add(*end));
        let blocks: Vec<_> = blocks.iter().map(shift).collect();
        let acknowledgement = Acknowledgement {
            number: FIRST.wrapping_add(number),
            blocks: &blocks,
            is_pure: true,
        };
        self.sending.acknowledge(self.now, acknowledgement)
    }

    /// Parts of the bytes in flight to retransmit.
    fn resend(&mut self) -> Vec<(u32, u32)> {
        let (mut from, end) = (self.sending.first(), self.sending.next());
        let mut parts = Vec::new();
        while let Some((start, behind)) = self.sending.next_piece(self.now, from, end) {
            parts.push((start.wrapping_sub(FIRST), behind.wrapping_sub(FIRST)));
            from = behind;
        }
        parts
    }

    /// Waits until the timer expires.
    fn expire(&mut self) -> i64 {
        let at = self.sending.deadline().unwrap();
        let waited = at - self.now;
        self.now = at;
        assert!(self.sending.expire(at));
        waited
    }
}

#[test]
fn the_first_flight_is_ten_segments_and_the_second_twenty() {
    let mut it = Trace::new();
    assert_eq!(it.sending.window(), 10_000);
    it.send(10_000);
    it.wait(ROUND_TRIP);
    // One acknowledgement for all of it.
    assert!(!it.acknowledge(10_000, &[]));
    assert_eq!(it.sending.window(), 20_000);
}

#[test]
fn one_acknowledgement_that_tells_of_three_segments_beyond_a_hole_is_enough() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    assert!(!it.acknowledge(1_000, &[(2_000, 4_000)]));
    assert_eq!(it.resend(), []);
    assert!(it.acknowledge(1_000, &[(2_000, 5_000)]));
    assert_eq!(it.resend(), [(1_000, 2_000)]);
    assert_eq!(it.resend(), [], "once");
}

#[test]
fn three_acknowledgements_of_20_kilobytes_each_tell_of_all_holes_between_them() {
    let mut it = Trace::new();
    for end in [10_000, 30_000, 70_000] {
        it.send(end);
        it.wait(ROUND_TRIP);
        it.acknowledge(end, &[]);
    }
    let window = it.sending.window();
    it.send(70_000 + window);
    it.wait(ROUND_TRIP);
    it.acknowledge(70_000, &[(71_000, 91_000)]);
    it.acknowledge(70_000, &[(92_000, 112_000), (71_000, 91_000)]);
    it.acknowledge(
        70_000,
        &[(113_000, 133_000), (92_000, 112_000), (71_000, 91_000)],
    );
    let holes = [(70_000, 71_000), (91_000, 92_000), (112_000, 113_000)];
    assert_eq!(it.resend(), holes);
    // One event, one cut: what arrives of one round trip sends 0.7 of that again.
    it.wait(ROUND_TRIP);
    it.acknowledge(70_000 + window, &[]);
    let after = it.sending.window();
    assert!(
        (window * 6 / 10..window * 3 / 4).contains(&after),
        "{window} {after}"
    );
}

#[test]
fn without_sack_three_duplicates_and_then_partial_acknowledgements_tell_of_losses() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(2_000, &[]);
    it.send(12_000);
    for count in 1..=3 {
        assert_eq!(it.acknowledge(2_000, &[]), count == 3);
    }
    assert_eq!(it.resend(), [(2_000, 3_000)]);
    it.wait(ROUND_TRIP);
    assert!(it.acknowledge(5_000, &[]));
    assert_eq!(it.resend(), [(5_000, 6_000)]);
}

#[test]
fn what_was_sent_again_and_lost_goes_again_once_something_newer_has_arrived() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 10_000)]);
    assert_eq!(it.resend(), [(1_000, 2_000)]);
    it.wait(ROUND_TRIP / 2);
    it.send(14_000);
    it.wait(ROUND_TRIP);
    assert!(it.acknowledge(1_000, &[(2_000, 14_000)]));
    assert_eq!(it.resend(), [(1_000, 2_000)]);
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips_and_the_answer_tells_of_the_rest() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(7_000, &[]);
    let waited = it.expire();
    assert!((30_000..=60_000).contains(&waited), "{waited}");
    assert_eq!(it.resend(), [(9_000, 10_000)]);
    it.wait(ROUND_TRIP);
    assert!(it.acknowledge(7_000, &[(9_000, 10_000)]));
    assert_eq!(it.resend(), [(7_000, 9_000)]);
    it.wait(ROUND_TRIP);
    it.acknowledge(10_000, &[]);
    assert_eq!(it.sending.deadline(), None);
}

#[test]
fn a_probe_without_an_answer_is_followed_by_a_timeout_which_backs_off() {
    let mut it = Trace::new();
    it.send(10_000);
    it.expire();
    assert_eq!(it.resend(), [(9_000, 10_000)]);
    let first = it.expire();
    assert!((200_000..400_000).contains(&first), "{first}");
    assert_eq!(it.resend(), [(0, 1_000)], "one segment");
    let second = it.expire();
    assert!(second >= first * 2 - 10_000, "{first} {second}");
    assert_eq!(it.resend(), [(0, 1_000)]);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[]);
    assert_eq!(it.resend(), [(1_000, 3_000)], "slow start");
}

#[test]
fn a_segment_that_was_only_overtaken_does_not_go_again() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 4_000)]);
    assert!(!it.acknowledge(4_000, &[]));
    assert_eq!(it.resend(), []);
}

#[test]
fn blocks_that_make_no_sense_change_nothing() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    for block in [
        (5_000, 5_000),
        (9_000, 11_000),
        (20_000, 30_000),
        (6_000, 2_000),
    ] {
        assert!(!it.acknowledge(1_000, &[block]), "{block:?}");
    }
    // Duplicates that arrived twice (RFC 2883).
    it.acknowledge(5_000, &[]);
    assert!(!it.acknowledge(5_000, &[(1_000, 4_000)]));
    assert_eq!(it.resend(), []);
}

#[test]
fn an_end_that_tells_of_every_second_byte_takes_bounded_memory() {
    let mut it = Trace::new();
    it.send(10_000);
    for at in 1..5_000 {
        it.acknowledge(0, &[(2 * at, 2 * at + 1)]);
        it.resend();
    }
    assert!(it.sending.board.pieces.len() <= MOST_CUT + 2);
}

#[test]
fn after_a_pause_the_window_is_the_first_one_again() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(10_000, &[]);
    assert!(!it.sending.rest(it.now + ROUND_TRIP));
    assert!(it.sending.rest(it.now + 1_000_000));
    assert_eq!(it.sending.window(), 10_000);
}

#[test]
fn shorter_segments_go_at_once_when_longer_ones_were_dropped() {
    let mut it = Trace::new();
    it.send(10_000);
    it.sending.shorten(500);
    let parts = it.resend();
    assert_eq!((parts[0].0, parts.last().unwrap().1), (0, 10_000));
}

#[test]
fn a_loss_among_few_segments_is_found_on_a_path_that_reorders() {
    let mut it = Trace::new();
    it.sending.threshold = MOST_THRESHOLD;
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 10_000)]);
    assert_eq!(it.resend(), [(1_000, 2_000)]);
}
