//! The highest rate with little loss: doubling, bisection, confirmation. Pure: the caller probes.

/// The most loss with which a probe passes, as a share of the packets sent.
pub(super) const TOLERATED_LOSS: f64 = 0.01;
/// A confirmation that fails lowers the rate by this share, then by twice as much, and so on.
const FIRST_STEP_DOWN: f64 = 0.05;
const STEPS_DOWN: u32 = 4;

/// The range to search, in packets a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    /// The first probe.
    pub(super) start: f64,
    /// Below this the search gives up.
    pub(super) lowest: f64,
    /// Above this the search stops.
    pub(super) highest: f64,
    /// The search ends when the rates that passed and failed are this close, as a ratio.
    pub(super) resolution: f64,
}

/// What the caller is to try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Attempt {
    pub(super) rate_pps: f64,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// A short probe.
    Probe,
    /// The result, over a longer time.
    Confirm,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    /// What the sender reached, in packets a second.
    pub(super) sent_pps: f64,
    /// Whether that is the rate asked for.
    pub(super) held_rate: bool,
    /// Share of the packets sent that did not arrive.
    pub(super) loss: f64,
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    /// The highest rate in packets a second.
    pub(super) rate_pps: f64,
    /// Whether the longer attempt at that rate passed too.
    pub(super) confirmed: bool,
    /// Whether the generator, not loss, set the limit.
    pub(super) generator_limited: bool,
}

/// Searches `range` by attempts of the caller; none where even the lowest rate loses packets.
///
/// An attempt that fails is repeated once.
pub(super) fn highest_rate<E>(
    range: Range,
    mut attempt: impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Option<Found>, E> {
    let mut probe = |rate_pps| try_twice(rate_pps, Stage::Probe, &mut attempt);
    let Some(mut bracket) = bracket(range, &mut probe)? else {
        return Ok(None);
    };
    bisect(&mut bracket, range.resolution, &mut probe)?;
    confirm(&bracket, &mut attempt).map(Some)
}

/// What an attempt says about its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Passed,
    /// Few losses, but the generator reached only this rate.
    Limited(f64),
    /// Too much loss, at this rate.
    Lost(f64),
}

impl Verdict {
    fn of(rate_pps: f64, trial: Trial) -> Self {
        if trial.loss > TOLERATED_LOSS {
            Self::Lost(trial.sent_pps.min(rate_pps))
        } else if trial.held_rate {
            Self::Passed
        } else {
            Self::Limited(trial.sent_pps)
        }
    }
}

fn try_twice<E>(
    rate_pps: f64,
    stage: Stage,
    attempt: &mut impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Verdict, E> {
    let mut verdict =
        || attempt(Attempt { rate_pps, stage }).map(|trial| Verdict::of(rate_pps, trial));
    let first = verdict()?;
    if first == Verdict::Passed {
        return Ok(first);
    }
    Ok(match (first, verdict()?) {
        (Verdict::Limited(first), Verdict::Limited(second)) => Verdict::Limited(first.max(second)),
        (Verdict::Limited(rate), Verdict::Lost(_)) => Verdict::Limited(rate),
        (_, second) => second,
    })
}

/// The highest rate that passed and the lowest that did not.
#[derive(Debug)]
struct Bracket {
    passed: f64,
    failed: f64,
    generator_limited: bool,
}

impl Bracket {
    fn passed_at(rate_pps: f64) -> Self {
        Self {
            passed: rate_pps,
            failed: f64::INFINITY,
            generator_limited: false,
        }
    }

    fn narrow(&mut self, rate_pps: f64, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed = rate_pps,
            Verdict::Limited(reached) => {
                self.passed = self.passed.max(reached);
                self.generator_limited = true;
            }
            Verdict::Lost(at) => self.failed = at.max(self.passed),
        }
    }
}

/// Doubles the rate until a probe fails, or quarters it until one passes.
fn bracket<E>(
    range: Range,
    probe: &mut impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<Option<Bracket>, E> {
    let mut rate = range.start;
    let mut failed = f64::INFINITY;
    let mut bracket = loop {
        match probe(rate)? {
            Verdict::Lost(_) if rate <= range.lowest => return Ok(None),
            Verdict::Lost(_) => {
                failed = rate;
                rate = (rate / 4.0).max(range.lowest);
            }
            verdict => {
                let mut bracket = Bracket::passed_at(0.0);
                bracket.failed = failed;
                bracket.narrow(rate, verdict);
                break bracket;
            }
        }
    };
    while bracket.failed.is_infinite() && !bracket.generator_limited && rate < range.highest {
        rate = (rate * 2.0).min(range.highest);
        bracket.narrow(rate, probe(rate)?);
    }
    Ok(Some(bracket))
}

fn bisect<E>(
    bracket: &mut Bracket,
    resolution: f64,
    probe: &mut impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<(), E> {
    while bracket.failed.is_finite()
        && !bracket.generator_limited
        && bracket.failed > bracket.passed * resolution
    {
        let middle = (bracket.passed * bracket.failed).sqrt();
        bracket.narrow(middle, probe(middle)?);
    }
    Ok(())
}

/// Tries the rate for longer, and lower ones while it fails.
fn confirm<E>(
    bracket: &Bracket,
    attempt: &mut impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut found = Found {
        rate_pps: bracket.passed,
        confirmed: false,
        generator_limited: bracket.generator_limited,
    };
    let mut step = FIRST_STEP_DOWN;
    for _ in 0..=STEPS_DOWN {
        match try_twice(found.rate_pps, Stage::Confirm, attempt)? {
            Verdict::Passed => {
                found.confirmed = true;
                return Ok(found);
            }
            Verdict::Limited(reached) => {
                return Ok(Found {
                    rate_pps: reached,
                    confirmed: true,
                    generator_limited: true,
                });
            }
            Verdict::Lost(_) => {
                found.generator_limited = false;
                found.rate_pps *= 1.0 - step;
                step *= 2.0;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
