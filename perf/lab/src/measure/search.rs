//! Searches for the highest rate with little loss by a staircase: up after a probe that passes, down after one that
//! fails, then the mean (W. J. Dixon and A. M. Mood, "A method for obtaining and analyzing sensitivity data", 1948).
//! Pure: the caller sends the probes.
//!
//! Near a machine's limit, chance decides whether a probe passes. One wrong result misleads a bisection for good;
//! here it costs one step back.

use crate::traffic::{UdpReceived, UdpSent};

/// Maximum loss of a probe that passes, as a share of the packets sent.
pub const TOLERATED_LOSS: f64 = 0.01;
/// Factors without a known rate: double until a probe fails, or quarter until one passes.
const COARSE: f64 = 2.0;
/// Probes per staircase.
const PROBES: usize = 10;
/// Ratio of successive rates, before and after the staircase first turns.
const FIRST_STEP: f64 = 1.12;
const STEP: f64 = 1.05;
/// Shares by which the rate is lowered before each confirmation, until one passes.
const STEPS_DOWN: [f64; 5] = [0.0, 0.05, 0.1, 0.2, 0.4];

/// The range to search, in packets per second.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The first probe.
    pub start: f64,
    /// Below this rate the search gives up.
    pub lowest: f64,
    /// Above this rate the search stops.
    pub highest: f64,
}

/// A request to the caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attempt {
    /// Packets per second.
    pub rate_pps: f64,
    /// Duration.
    pub stage: Stage,
}

/// The durations of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A short probe.
    Probe,
    /// The confirmation, over a longer time.
    Confirm,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The rate that the sender reached, in packets per second.
    pub sent_pps: f64,
    /// Whether that is the requested rate.
    pub held_rate: bool,
    /// Share of the packets sent that did not arrive.
    pub loss: f64,
    /// Share of the packets sent that reached the host but overran the receiver's buffer; part of `loss`.
    pub receiver_loss: f64,
}

impl Trial {
    /// Derives the outcome from what both ends report.
    pub fn of(sent: UdpSent, received: UdpReceived) -> Self {
        let lost = sent.packets.saturating_sub(received.packets);
        let share = |packets: u64| packets as f64 / sent.packets.max(1) as f64;
        Self {
            sent_pps: sent.packets as f64 / sent.seconds,
            held_rate: sent.held_rate,
            loss: share(lost),
            receiver_loss: share(received.socket_drops.min(lost)),
        }
    }

    /// The rate that arrived, in packets per second.
    pub fn arrived_pps(&self) -> f64 {
        self.sent_pps * (1.0 - self.loss)
    }
}

/// The outcome of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The highest rate in packets per second.
    pub rate_pps: f64,
    /// Whether the longer attempt at that rate also passed.
    pub confirmed: bool,
    /// Whether the generator's sender or receiver set the limit, rather than loss on the way.
    pub generator_limited: bool,
}

/// Finds the rate in `range` that half of the probes pass, then confirms it with a longer attempt, or lowers it until
/// one passes; `None` if even the lowest rate loses packets.
pub fn highest_rate<E>(
    range: Range,
    mut attempt: impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Option<Found>, E> {
    let Some(mut found) = rate_that_half_pass(range, None, &mut attempt)? else {
        return Ok(None);
    };
    for step in STEPS_DOWN {
        found.rate_pps *= 1.0 - step;
        let (rate_pps, stage) = (found.rate_pps, Stage::Confirm);
        let verdict = Verdict::of(rate_pps, attempt(Attempt { rate_pps, stage })?);
        found.confirmed = matches!(verdict, Verdict::Passed | Verdict::Slow(_));
        match verdict {
            Verdict::Passed => {}
            Verdict::Slow(reached) => (found.rate_pps, found.generator_limited) = (reached, true),
            Verdict::Overrun => found.generator_limited = true,
            Verdict::Lost => found.generator_limited = false,
        }
        if found.confirmed {
            break;
        }
    }
    Ok(Some(found))
}

/// Finds the rate in `range` that half of the probes pass, starting at `known`, a rate found earlier; `None` if even
/// the lowest rate loses packets. The result is an average and is not confirmed.
pub fn rate_that_half_pass<E>(
    range: Range,
    known: Option<f64>,
    mut attempt: impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Option<Found>, E> {
    let mut probe = |rate_pps| {
        let stage = Stage::Probe;
        attempt(Attempt { rate_pps, stage }).map(|trial| Verdict::of(rate_pps, trial))
    };
    if let Some(start) = known {
        let (found, has_turned) = staircase(start, range, &mut probe)?;
        if has_turned {
            return Ok(Some(found));
        }
    }
    let Some(start) = coarse(range, &mut probe)? else {
        return Ok(None);
    };
    Ok(Some(staircase(start, range, &mut probe)?.0))
}

/// The verdict of an attempt on its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Passed,
    /// Little loss, but the sender reached only this rate.
    Slow(f64),
    /// Too much loss, but little of it on the way to the receiver.
    Overrun,
    /// Too much loss on the way.
    Lost,
}

impl Verdict {
    fn of(rate_pps: f64, trial: Trial) -> Self {
        if trial.loss - trial.receiver_loss > TOLERATED_LOSS {
            Self::Lost
        } else if trial.loss > TOLERATED_LOSS {
            Self::Overrun
        } else if trial.held_rate {
            Self::Passed
        } else {
            Self::Slow(trial.sent_pps.min(rate_pps))
        }
    }
}

/// Finds the highest rate that passes to within a factor of two. Repeats a failed probe once.
fn coarse<E>(
    range: Range,
    probe: &mut impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<Option<f64>, E> {
    let mut twice = |rate| match probe(rate)? {
        Verdict::Passed => Ok(Verdict::Passed),
        _ => probe(rate),
    };
    let mut rate = range.start;
    let mut verdict = twice(rate)?;
    while let Verdict::Lost | Verdict::Overrun = verdict {
        if rate <= range.lowest {
            return Ok(None);
        }
        rate = (rate / (COARSE * COARSE)).max(range.lowest);
        verdict = twice(rate)?;
    }
    while verdict == Verdict::Passed && rate < range.highest {
        let next = (rate * COARSE).min(range.highest);
        verdict = twice(next)?;
        if verdict == Verdict::Passed {
            rate = next;
        }
    }
    Ok(Some(match verdict {
        Verdict::Passed => rate,
        Verdict::Slow(reached) => reached.max(rate),
        // Between the rate that passed and the one that failed.
        Verdict::Lost | Verdict::Overrun => rate * COARSE.sqrt(),
    }))
}

/// Probes one rate after another, each one step from the last. Returns the mean of the rates, and whether
/// they went both up and down.
fn staircase<E>(
    start: f64,
    range: Range,
    probe: &mut impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<(Found, bool), E> {
    let (mut passed, mut failed, mut by_generator) = (0, 0, 0);
    let mut rate = start;
    // Starts at the first turn, and includes the rate that would come next.
    let mut rates = Vec::new();
    for _ in 0..PROBES {
        let mut step = STEP;
        let verdict = probe(rate)?;
        let has_passed = verdict == Verdict::Passed;
        passed += usize::from(has_passed);
        failed += usize::from(!has_passed);
        by_generator += usize::from(matches!(verdict, Verdict::Slow(_) | Verdict::Overrun));
        if passed == 0 || failed == 0 {
            step = FIRST_STEP;
            rates.clear();
        }
        rate = if has_passed { rate * step } else { rate / step };
        rate = rate.clamp(range.lowest, range.highest);
        rates.push(rate);
    }
    // Geometric mean, since the steps are equal ratios.
    let logarithms: f64 = rates.iter().map(|rate| rate.ln()).sum();
    let found = Found {
        rate_pps: (logarithms / rates.len() as f64).exp(),
        confirmed: false,
        generator_limited: by_generator * 2 > failed,
    };
    Ok((found, passed > 0 && failed > 0))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const RANGE: Range = Range {
        start: 64_000.0,
        lowest: 1_000.0,
        highest: 4_000_000.0,
    };

    fn trial(rate_pps: f64, loss: f64) -> Trial {
        Trial {
            sent_pps: rate_pps,
            held_rate: true,
            loss,
            receiver_loss: 0.0,
        }
    }

    fn overflow(capacity: f64, rate: f64) -> f64 {
        (1.0 - capacity / rate).max(0.0)
    }

    /// The result on a simulated link, and the number of probes. `link` maps a probe's number and rate to its loss.
    fn half_pass(known: Option<f64>, link: impl Fn(usize, f64) -> f64) -> (f64, usize) {
        let mut probes = 0;
        let Ok(found) = rate_that_half_pass(RANGE, known, |Attempt { rate_pps, .. }| {
            probes += 1;
            Ok::<_, Infallible>(trial(rate_pps, link(probes, rate_pps)))
        });
        (found.unwrap().rate_pps, probes)
    }

    #[test]
    fn the_rate_of_a_link_is_found_within_a_step() {
        for capacity in [1_500.0, 9_000.0, 64_000.0, 97_000.0, 231_000.0, 3_000_000.0] {
            let near = [0.9, 1.0, 1.1].map(|off| Some(capacity * off));
            for known in [None, Some(10_000.0), near[0], near[1], near[2]] {
                let (rate, probes) = half_pass(known, |_, rate| overflow(capacity, rate));
                let ratio = rate / capacity;
                assert!((0.94..1.06).contains(&ratio), "{known:?}: {ratio}");
                assert!(probes == PROBES || !near.contains(&known), "{probes}");
            }
        }
    }

    #[test]
    fn a_probe_that_fails_by_chance_costs_a_step() {
        for hiccup in 1..=PROBES {
            let link = |probe, rate| overflow(200_000.0, rate) + f64::from(probe == hiccup);
            for (known, least) in [(None, 0.85), (Some(200_000.0), 0.92)] {
                let ratio = half_pass(known, link).0 / 200_000.0;
                assert!((least..1.06).contains(&ratio), "{known:?}: {ratio}");
            }
        }
    }

    #[test]
    fn of_a_limit_that_wavers_neither_end_is_found() {
        let wavering = |probe, rate| overflow([150_000.0, 250_000.0][probe % 2], rate);
        for known in [None, Some(160_000.0), Some(200_000.0), Some(240_000.0)] {
            let (rate, _) = half_pass(known, wavering);
            assert!((155e3..245e3).contains(&rate), "{known:?}: {rate}");
        }
    }

    #[test]
    fn a_generator_that_sets_the_limit_is_reported() {
        for (held_rate, loss) in [(false, 0.0), (true, 0.5)] {
            let Ok(found) = highest_rate(RANGE, |attempt| {
                let is_over = attempt.rate_pps > 310_000.0;
                let loss = if is_over { loss } else { 0.0 };
                Ok::<_, Infallible>(Trial {
                    held_rate: held_rate || !is_over,
                    receiver_loss: loss,
                    ..trial(attempt.rate_pps.min(310_000.0), loss)
                })
            });
            let found = found.unwrap();
            assert!(found.generator_limited, "{found:?}");
            assert!((280e3..330e3).contains(&found.rate_pps), "{found:?}");
        }
    }

    #[test]
    fn a_confirmation_that_fails_lowers_the_rate_until_one_passes() {
        for (confirmed_below, rates, confirmed) in [
            (200e3, 90e3..110e3, true),
            (80e3, 60e3..81e3, true),
            (1e3, 0.0..60e3, false),
        ] {
            let Ok(found) = highest_rate(RANGE, |Attempt { rate_pps, stage }| {
                let capacity = match stage {
                    Stage::Probe => 100e3,
                    Stage::Confirm => confirmed_below,
                };
                Ok::<_, Infallible>(trial(rate_pps, overflow(capacity, rate_pps)))
            });
            let found = found.unwrap();
            assert_eq!(found.confirmed, confirmed, "{found:?}");
            assert!(rates.contains(&found.rate_pps), "{found:?}");
        }
        let lossy = |attempt: Attempt| Ok::<_, Infallible>(trial(attempt.rate_pps, 0.5));
        assert_eq!(highest_rate(RANGE, lossy), Ok(None));
        assert_eq!(rate_that_half_pass(RANGE, Some(2_000.0), lossy), Ok(None));
    }

    #[test]
    fn packets_that_were_sent_and_did_not_arrive_are_lost() {
        let sent = UdpSent {
            packets: 1_000,
            seconds: 0.5,
            held_rate: true,
        };
        let received = UdpReceived {
            packets: 990,
            socket_drops: 4,
            ..UdpReceived::default()
        };
        let trial = Trial::of(sent, received);
        assert_eq!((trial.sent_pps, trial.loss), (2_000.0, 0.01));
        assert_eq!(trial.receiver_loss, 0.004);
    }
}
