//! Segments that were taken for lost although they were only late, and those that were not.

use super::*;

#[test]
fn a_segment_that_many_have_overtaken_gives_the_window_back_and_the_next_one_is_waited_for() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    assert!(it.acknowledge(1_000, &[(2_000, 6_000)]));
    assert_eq!(it.resend(), [(1_000, 2_000)]);
    // No answer to that can be here already.
    it.wait(1_000);
    assert!(!it.acknowledge(6_000, &[]));
    assert!(it.sending.window() >= 10_000, "{:?}", it.sending);
    it.wait(ROUND_TRIP);
    it.acknowledge(10_000, &[]);
    it.send(24_000);
    it.wait(ROUND_TRIP);
    assert!(!it.acknowledge(10_000, &[(11_000, 15_000)]));
    assert_eq!(it.resend(), []);
    assert!(it.acknowledge(10_000, &[(11_000, 18_000)]));
}

#[test]
fn a_timeout_that_was_too_early_gives_the_window_back() {
    let mut it = Trace::new();
    it.send(10_000);
    it.expire();
    it.resend();
    it.expire();
    assert_eq!(it.resend(), [(0, 1_000)]);
    it.wait(1_000);
    it.acknowledge(2_000, &[]);
    assert_eq!(it.resend(), []);
    assert!(it.sending.window() >= 10_000, "{:?}", it.sending);
}

#[test]
fn a_timeout_that_was_not_too_early_keeps_the_window_small() {
    let mut it = Trace::new();
    it.send(10_000);
    it.expire();
    it.resend();
    it.expire();
    assert_eq!(it.resend(), [(0, 1_000)]);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[]);
    assert_eq!(it.resend(), [(1_000, 3_000)]);
}

#[test]
fn an_overtaken_segment_does_not_give_the_window_back_if_another_one_was_lost() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 3_000), (4_000, 10_000)]);
    let window = it.sending.control.window();
    assert_eq!(it.resend(), [(1_000, 2_000), (3_000, 4_000)]);
    it.wait(1_000);
    it.acknowledge(1_000, &[(2_000, 10_000)]);
    assert_eq!(it.sending.control.window(), window);
    assert_eq!(it.sending.threshold, 2 * THRESHOLD, "the path reorders");
    it.wait(ROUND_TRIP);
    it.acknowledge(10_000, &[]);
    assert_eq!(it.sending.control.window(), window);
}

#[test]
fn segments_that_were_all_overtaken_give_the_window_back() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    let window = it.sending.control.window();
    it.acknowledge(1_000, &[(2_000, 3_000), (4_000, 10_000)]);
    assert_eq!(it.resend(), [(1_000, 2_000), (3_000, 4_000)]);
    it.wait(1_000);
    it.acknowledge(1_000, &[(2_000, 10_000)]);
    it.wait(1_000);
    it.acknowledge(10_000, &[]);
    assert!(it.sending.control.window() >= window, "{:?}", it.sending);
}

#[test]
fn an_overtaken_segment_does_not_give_the_window_back_after_a_lost_one() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 5_000)]);
    let window = it.sending.control.window();
    assert_eq!(it.resend(), [(1_000, 2_000)]);
    it.wait(ROUND_TRIP);
    it.acknowledge(5_000, &[]);
    it.acknowledge(5_000, &[(6_000, 10_000)]);
    assert_eq!(it.resend(), [(5_000, 6_000)]);
    it.wait(1_000);
    it.acknowledge(10_000, &[]);
    assert_eq!(it.sending.control.window(), window);
}

#[test]
fn the_original_of_a_probe_gives_no_window_back() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(5_000, &[]);
    it.expire();
    assert_eq!(it.resend(), [(9_000, 10_000)]);
    it.wait(1_000);
    assert!(it.acknowledge(5_000, &[(6_000, 9_000)]));
    let window = it.sending.control.window();
    assert_eq!(it.resend(), [(5_000, 6_000)]);
    it.wait(1_000);
    it.acknowledge(5_000, &[(6_000, 10_000)]);
    assert_eq!(it.sending.control.window(), window);
}

#[test]
fn a_timeout_that_was_too_early_does_not_give_back_what_a_loss_before_it_has_cut() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 5_000)]);
    let window = it.sending.control.window();
    assert_eq!(it.resend(), [(1_000, 2_000)]);
    it.expire();
    assert_eq!(it.resend(), [(1_000, 2_000)]);
    it.wait(1_000);
    // The answer to what went again the first time.
    it.acknowledge(5_000, &[]);
    let after = it.sending.control.window();
    assert!((window..window * 11 / 10).contains(&after), "{after}");
}

#[test]
fn a_segment_that_was_taken_for_lost_by_mistake_tells_no_round_trip() {
    let mut it = Trace::new();
    it.send(10_000);
    it.wait(ROUND_TRIP);
    it.acknowledge(1_000, &[(2_000, 3_000), (4_000, 10_000)]);
    let (from, end) = (it.sending.first(), it.sending.next());
    // There is no time for the second one.
    assert!(it.sending.next_piece(it.now, from, end).is_some());
    it.wait(1_000);
    it.acknowledge(3_000, &[(4_000, 10_000)]);
    it.wait(1_000);
    it.acknowledge(10_000, &[]);
    assert!(it.sending.times.least() >= ROUND_TRIP, "{:?}", it.sending);
}

#[test]
fn a_segment_that_was_taken_for_lost_by_mistake_may_be_found_lost_later() {
    let mut it = Trace::new();
    it.send(10_000);
    it.expire();
    it.resend();
    it.expire();
    assert_eq!(it.resend(), [(0, 1_000)]);
    it.wait(1_000);
    it.acknowledge(2_000, &[]);
    assert_eq!(it.resend(), []);
    assert!(it.acknowledge(2_000, &[(3_000, 10_000)]));
    assert_eq!(it.resend(), [(2_000, 3_000)]);
}
