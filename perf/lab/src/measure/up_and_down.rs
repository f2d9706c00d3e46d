//! The rate at which half of the probes pass: up after one that does, down after one that does not
//! (W. J. Dixon and A. M. Mood, "A method for obtaining and analyzing sensitivity data", 1948).
//!
//! Near the limit of a whole machine a probe fails or passes by chance. A bisection is misled for good
//! by one that does; here it costs a step back.

use super::search::{Attempt, Found, Range, Stage, Trial, Verdict, highest_probed_rate};

/// Probes of a sequence.
const PROBES: usize = 10;
/// From one rate to the next, as a ratio, until the sequence turns for the first time,
const STEP_AT_FIRST: f64 = 1.12;
/// and from then on.
const STEP: f64 = 1.05;

/// The rate in `range` that half of the probes pass, looked for around `known`, a rate found before; none
/// where even the lowest one loses packets. Nothing is confirmed: it is an average.
///
/// Without `known`, or where it turns out to be far off, a search finds out where to begin, as closely as
/// the range's resolution.
///
/// # Errors
/// Those of the caller's attempts.
pub fn rate_that_half_pass<E>(
    range: Range,
    known: Option<f64>,
    mut attempt: impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Option<Found>, E> {
    if let Some(start) = known {
        let sequence = Sequence::run(start, range, &mut attempt)?;
        if sequence.has_turned() {
            return Ok(Some(sequence.found()));
        }
    }
    let Some(start) = highest_probed_rate(range, &mut attempt)? else {
        return Ok(None);
    };
    let sequence = Sequence::run(start.rate_pps, range, &mut attempt)?;
    Ok(Some(sequence.found()))
}

/// Probes one after the other, each a step from the one before.
struct Sequence {
    /// The rates from the first turn on, with the one that would be next.
    rates: Vec<f64>,
    passed: usize,
    failed: usize,
    /// Of those that failed: where the sender or the receiver was too slow.
    by_generator: usize,
}

impl Sequence {
    fn run<E>(
        start: f64,
        range: Range,
        attempt: &mut impl FnMut(Attempt) -> Result<Trial, E>,
    ) -> Result<Self, E> {
        let mut sequence = Self {
            rates: vec![start],
            passed: 0,
            failed: 0,
            by_generator: 0,
        };
        let mut rate_pps = start;
        for _ in 0..PROBES {
            let stage = Stage::Probe;
            let verdict = Verdict::of(rate_pps, attempt(Attempt { rate_pps, stage })?);
            let direction = sequence.note(verdict);
            let step = if sequence.has_turned() {
                STEP
            } else {
                sequence.rates.clear();
                STEP_AT_FIRST
            };
            rate_pps = (rate_pps * step.powi(direction)).clamp(range.lowest, range.highest);
            sequence.rates.push(rate_pps);
        }
        Ok(sequence)
    }

    /// Counts a probe, and returns where to go after it: up (1) or down (-1).
    fn note(&mut self, verdict: Verdict) -> i32 {
        let is_of_generator = match verdict {
            Verdict::Passed => {
                self.passed += 1;
                return 1;
            }
            Verdict::Slow(_) => true,
            Verdict::Lost { by_receiver, .. } => by_receiver,
        };
        self.failed += 1;
        self.by_generator += usize::from(is_of_generator);
        -1
    }

    /// Whether it went both up and down.
    fn has_turned(&self) -> bool {
        self.passed > 0 && self.failed > 0
    }

    /// The mean of the rates, on the scale on which the steps are equal.
    fn found(&self) -> Found {
        let logarithms: f64 = self.rates.iter().map(|rate| rate.ln()).sum();
        Found {
            rate_pps: (logarithms / self.rates.len() as f64).exp(),
            confirmed: false,
            generator_limited: self.by_generator * 2 > self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const RANGE: Range = Range {
        start: 64_000.0,
        lowest: 1_000.0,
        highest: 2_000_000.0,
        step: 2.0,
        resolution: 1.2,
    };

    /// The rate found on a link, and the number of probes. `link` is asked with their number and rate
    /// for the loss.
    fn measured(known: Option<f64>, link: impl Fn(usize, f64) -> f64) -> (f64, usize) {
        let mut probes = 0;
        let Ok(found) = rate_that_half_pass(RANGE, known, |Attempt { rate_pps, .. }| {
            probes += 1;
            Ok::<_, Infallible>(Trial {
                sent_pps: rate_pps,
                held_rate: true,
                loss: link(probes, rate_pps),
                receiver_loss: 0.0,
            })
        });
        (found.unwrap().rate_pps, probes)
    }

    fn overflow(capacity: f64, rate: f64) -> f64 {
        (1.0 - capacity / rate).max(0.0)
    }

    #[test]
    fn the_rate_of_a_link_is_found_within_a_step() {
        for capacity in [9_000.0, 64_000.0, 97_000.0, 231_000.0, 1_500_000.0] {
            let link = |_, rate| overflow(capacity, rate);
            let near = [0.9, 1.0, 1.1].map(|off| Some(capacity * off));
            for known in [None, Some(10_000.0), near[0], near[1], near[2]] {
                let (rate, probes) = measured(known, link);
                let ratio = rate / capacity;
                assert!(
                    (0.95..1.05).contains(&ratio),
                    "{capacity} {known:?}: {ratio}"
                );
                assert!(probes == PROBES || !near.contains(&known), "{probes}");
            }
        }
    }

    #[test]
    fn a_probe_that_fails_by_chance_costs_a_step() {
        for hiccup in 1..=PROBES {
            let link = |probe, rate| overflow(200_000.0, rate) + f64::from(probe == hiccup);
            let (rate, _) = measured(Some(200_000.0), link);
            assert!((0.92..1.06).contains(&(rate / 200_000.0)), "{rate}");
        }
    }

    #[test]
    fn of_a_limit_that_wavers_neither_end_is_found() {
        let wavering = |probe, rate| overflow([150_000.0, 250_000.0][probe % 2], rate);
        for known in [None, Some(160_000.0), Some(200_000.0), Some(240_000.0)] {
            let (rate, _) = measured(known, wavering);
            assert!((155e3..245e3).contains(&rate), "{known:?}: {rate}");
        }
    }

    #[test]
    fn a_sender_or_a_receiver_that_sets_the_limit_is_told() {
        for (held_rate, loss) in [(false, 0.0), (true, 0.5)] {
            let Ok(found) = rate_that_half_pass(RANGE, Some(300_000.0), |attempt| {
                let is_over = attempt.rate_pps > 310_000.0;
                let loss = if is_over { loss } else { 0.0 };
                Ok::<_, Infallible>(Trial {
                    sent_pps: attempt.rate_pps.min(310_000.0),
                    held_rate: held_rate || !is_over,
                    loss,
                    receiver_loss: loss,
                })
            });
            let found = found.unwrap();
            assert!(found.generator_limited, "{found:?}");
            assert!((290e3..330e3).contains(&found.rate_pps), "{found:?}");
        }
    }

    #[test]
    fn a_link_that_loses_at_every_rate_has_none() {
        let trial = Trial {
            sent_pps: 1.0,
            held_rate: true,
            loss: 0.5,
            receiver_loss: 0.0,
        };
        let found = rate_that_half_pass(RANGE, Some(2_000.0), |_| Ok::<_, Infallible>(trial));
        assert_eq!(found, Ok(None));
    }
}
