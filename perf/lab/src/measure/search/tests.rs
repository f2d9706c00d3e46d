//! Searches on a simulated link.

use std::convert::Infallible;

use super::*;

const RANGE: Range = Range {
    start: 32_000.0,
    lowest: 1_000.0,
    highest: 4_000_000.0,
    step: 2.0,
    resolution: 1.03,
};

#[test]
fn the_rate_of_a_link_is_found_within_the_resolution() {
    for capacity in [
        1_500.0,
        31_999.0,
        32_000.0,
        97_000.0,
        231_000.0,
        3_000_000.0,
    ] {
        let mut link = Link::of(capacity);
        let found = link.search().unwrap();
        let ratio = capacity / found.rate_pps;
        assert!((0.98..1.04).contains(&ratio), "{capacity}: {found:?}");
        assert!(found.confirmed && !found.generator_limited, "{found:?}");
        assert!(link.attempts.len() < 28, "{}", link.attempts.len());
    }
}

#[test]
fn a_probe_that_fails_by_chance_is_repeated_once() {
    let mut link = Link::of(100_000.0);
    link.hiccups = vec![1];
    let found = link.search().unwrap();
    assert_eq!(link.attempts[1].rate_pps, link.attempts[2].rate_pps);
    assert!(found.rate_pps > 96_000.0, "{found:?}");
}

#[test]
fn a_probe_that_fails_twice_is_not_tried_again() {
    let mut link = Link::of(40_000.0);
    link.search().unwrap();
    let at_64k = link
        .attempts
        .iter()
        .filter(|attempt| attempt.rate_pps == 64_000.0);
    assert_eq!(at_64k.count(), 2);
}

#[test]
fn the_result_is_confirmed_by_a_longer_attempt() {
    let mut link = Link::of(50_000.0);
    let found = link.search().unwrap();
    let last = link.attempts.last().unwrap();
    assert_eq!(last.stage, Stage::Confirm);
    assert_eq!(last.rate_pps, found.rate_pps);
    let confirmations = link
        .attempts
        .iter()
        .filter(|attempt| attempt.stage == Stage::Confirm);
    assert_eq!(confirmations.count(), 1);
}

#[test]
fn a_rate_that_does_not_last_is_lowered_until_one_does() {
    let mut link = Link::of(100_000.0);
    link.lasting = 90_000.0;
    let found = link.search().unwrap();
    assert!(found.confirmed);
    assert!((80_000.0..90_900.0).contains(&found.rate_pps), "{found:?}");
}

#[test]
fn a_rate_that_never_lasts_is_reported_as_unconfirmed() {
    let mut link = Link::of(100_000.0);
    link.lasting = 1.0;
    assert!(!link.search().unwrap().confirmed);
}

#[test]
fn a_sender_that_is_too_slow_limits_the_result_and_not_the_link() {
    let mut link = Link::of(1_000_000.0);
    link.sender = 300_000.0;
    let found = link.search().unwrap();
    assert!(found.generator_limited && found.confirmed);
    assert!(
        (299_000.0..=303_000.0).contains(&found.rate_pps),
        "{found:?}"
    );
}

#[test]
fn a_sender_that_was_held_up_once_does_not_end_the_search() {
    let mut link = Link::of(200_000.0);
    link.held_up = vec![1, 2];
    let found = link.search().unwrap();
    assert!(found.rate_pps < 64_000.0, "the probes at 64 kpps failed");
    assert!(found.rate_pps > 60_000.0, "{found:?}");
    assert!(found.generator_limited);
}

#[test]
fn a_receiver_that_is_too_slow_limits_the_result_and_not_the_link() {
    let mut link = Link::of(1_000_000.0);
    link.receiver = 150_000.0;
    let found = link.search().unwrap();
    assert!(found.generator_limited && found.confirmed);
    assert!(
        (145_000.0..=151_600.0).contains(&found.rate_pps),
        "{found:?}"
    );
}

#[test]
fn losses_at_a_rate_that_the_sender_reached_are_the_links() {
    let mut link = Link::of(200_000.0);
    link.sender = 300_000.0;
    let found = link.search().unwrap();
    assert!(!found.generator_limited, "{found:?}");
    assert!(
        (194_000.0..=202_100.0).contains(&found.rate_pps),
        "{found:?}"
    );
}

#[test]
fn a_link_that_loses_at_every_rate_has_none() {
    let mut link = Link::of(1e9);
    link.floor = 0.02;
    assert_eq!(link.search(), None);
    assert!(link.attempts.len() <= 14);
}

#[test]
fn a_link_without_limit_ends_the_search_at_its_highest_rate() {
    let found = Link::of(1e12).search().unwrap();
    assert_eq!(found.rate_pps, RANGE.highest);
}

#[test]
fn a_search_that_begins_near_the_rate_takes_few_probes() {
    for capacity in [80_000.0, 96_000.0, 104_000.0, 125_000.0] {
        let mut link = Link::of(capacity);
        let near = Range {
            start: 100_000.0,
            step: 1.12,
            resolution: 1.04,
            ..RANGE
        };
        let Ok(found) = highest_probed_rate(near, &mut |attempt| {
            Ok::<_, Infallible>(link.trial(attempt))
        });
        let ratio = capacity / found.unwrap().rate_pps;
        assert!((0.98..1.05).contains(&ratio), "{capacity}: {found:?}");
        let probes = link.attempts.len();
        assert!(probes <= 9, "{capacity}: {probes} probes");
        let is_probe = |attempt: &Attempt| attempt.stage == Stage::Probe;
        assert!(link.attempts.iter().all(is_probe), "nothing is confirmed");
    }
}

#[test]
fn an_attempt_that_cannot_be_made_ends_the_search() {
    let mut left = 3;
    let outcome = highest_rate(RANGE, |attempt| {
        left -= 1;
        if left == 0 {
            return Err("the daemon is gone");
        }
        Ok(Trial {
            sent_pps: attempt.rate_pps,
            held_rate: true,
            loss: 0.0,
            receiver_loss: 0.0,
        })
    });
    assert_eq!(outcome, Err("the daemon is gone"));
}

/// A link that forwards `capacity` packets a second and drops the rest.
struct Link {
    capacity: f64,
    /// What it forwards in a longer attempt.
    lasting: f64,
    /// What the sender reaches.
    sender: f64,
    /// What the receiver takes.
    receiver: f64,
    /// Loss at any rate.
    floor: f64,
    /// The attempts that lose a tenth for no reason.
    hiccups: Vec<usize>,
    /// The attempts in which the sender reaches half.
    held_up: Vec<usize>,
    attempts: Vec<Attempt>,
}

impl Link {
    fn of(capacity: f64) -> Self {
        Self {
            capacity,
            lasting: capacity,
            sender: f64::INFINITY,
            receiver: f64::INFINITY,
            floor: 0.0,
            hiccups: Vec::new(),
            held_up: Vec::new(),
            attempts: Vec::new(),
        }
    }

    fn search(&mut self) -> Option<Found> {
        let Ok(found) = highest_rate(RANGE, |attempt| Ok::<_, Infallible>(self.trial(attempt)));
        found
    }

    fn trial(&mut self, attempt: Attempt) -> Trial {
        let hiccup = self.hiccups.contains(&self.attempts.len());
        let held_up = self.held_up.contains(&self.attempts.len());
        self.attempts.push(attempt);
        let capacity = match attempt.stage {
            Stage::Probe => self.capacity,
            Stage::Confirm => self.lasting,
        };
        let reached = attempt.rate_pps * if held_up { 0.5 } else { 1.0 };
        let sent_pps = reached.min(self.sender);
        let overflow = (1.0 - capacity / sent_pps).max(0.0);
        let loss = overflow.max(self.floor) + if hiccup { 0.1 } else { 0.0 };
        let arriving = sent_pps * (1.0 - loss);
        let receiver_loss = ((arriving - self.receiver) / sent_pps).max(0.0);
        Trial {
            sent_pps,
            held_rate: sent_pps >= attempt.rate_pps * 0.99,
            loss: loss + receiver_loss,
            receiver_loss,
        }
    }
}
