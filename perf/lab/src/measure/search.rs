//! The highest rate with little loss: steps up or down, bisection, confirmation. Pure: the caller
//! probes.

/// The most loss with which a probe passes, as a share of the packets sent.
pub const TOLERATED_LOSS: f64 = 0.01;
const LONGEST_STEP: f64 = 2.0;
/// A confirmation that fails lowers the rate by these shares, one after the other.
const STEPS_DOWN: [f64; 4] = [0.05, 0.1, 0.2, 0.4];

/// The range to search, in packets a second.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The first probe.
    pub start: f64,
    /// Below this the search gives up.
    pub lowest: f64,
    /// Above this the search stops.
    pub highest: f64,
    /// How far the second probe is above the first, as a ratio; below it is twice as far. Each
    /// further step is twice as long (on a scale of ratios), up to a doubling.
    pub step: f64,
    /// The search ends when the rates that passed and failed are this close, as a ratio.
    pub resolution: f64,
}

/// What the caller is to try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attempt {
    /// Packets a second.
    pub rate_pps: f64,
    /// How long it takes.
    pub stage: Stage,
}

/// How long an attempt takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A short probe.
    Probe,
    /// The result, over a longer time.
    Confirm,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// What the sender reached, in packets a second.
    pub sent_pps: f64,
    /// Whether that is the rate asked for.
    pub held_rate: bool,
    /// Share of the packets sent that did not arrive.
    pub loss: f64,
    /// Share of the packets sent that arrived and that the receiver was too slow to take; part of
    /// `loss`.
    pub receiver_loss: f64,
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The highest rate in packets a second.
    pub rate_pps: f64,
    /// Whether the longer attempt at that rate passed too.
    pub confirmed: bool,
    /// Whether the generator's sender or receiver set the limit, not loss on the way.
    pub generator_limited: bool,
}

/// Searches `range` by attempts of the caller; none where even the lowest rate loses packets.
///
/// A probe that fails is repeated once; a confirmation is not, since that would take long.
///
/// # Errors
/// Those of the caller's attempts.
pub fn highest_rate<E>(
    range: Range,
    mut attempt: impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Option<Found>, E> {
    let Some(found) = highest_probed_rate(range, &mut attempt)? else {
        return Ok(None);
    };
    confirm(found, &mut attempt).map(Some)
}

/// As [`highest_rate`] without the confirmation.
///
/// # Errors
/// Those of the caller's attempts.
pub(super) fn highest_probed_rate<E>(
    range: Range,
    attempt: &mut impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Option<Found>, E> {
    let mut probe = |rate_pps| try_twice(rate_pps, attempt);
    let Some(mut bracket) = bracket(range, &mut probe)? else {
        return Ok(None);
    };
    bisect(&mut bracket, range.resolution, &mut probe)?;
    Ok(Some(Found {
        rate_pps: bracket.passed,
        confirmed: false,
        generator_limited: bracket.generator_limited,
    }))
}

/// What an attempt says about its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    Passed,
    /// Few losses, but the sender reached only this rate.
    Slow(f64),
    /// Too much loss at this rate.
    Lost {
        rate_pps: f64,
        by_receiver: bool,
    },
}

impl Verdict {
    pub(super) fn of(rate_pps: f64, trial: Trial) -> Self {
        if trial.loss > TOLERATED_LOSS {
            Self::Lost {
                rate_pps: trial.sent_pps.min(rate_pps),
                by_receiver: trial.loss - trial.receiver_loss <= TOLERATED_LOSS,
            }
        } else if trial.held_rate {
            Self::Passed
        } else {
            Self::Slow(trial.sent_pps)
        }
    }
}

fn try_twice<E>(
    rate_pps: f64,
    attempt: &mut impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Verdict, E> {
    let stage = Stage::Probe;
    let mut verdict =
        || attempt(Attempt { rate_pps, stage }).map(|trial| Verdict::of(rate_pps, trial));
    let first = verdict()?;
    if first == Verdict::Passed {
        return Ok(first);
    }
    Ok(match (first, verdict()?) {
        (Verdict::Slow(first), Verdict::Slow(second)) => Verdict::Slow(first.max(second)),
        (slow @ Verdict::Slow(_), Verdict::Lost { .. }) => slow,
        (_, second) => second,
    })
}

/// The highest rate that passed, the lowest that did not, and why not.
#[derive(Debug)]
struct Bracket {
    passed: f64,
    failed: f64,
    generator_limited: bool,
}

impl Bracket {
    fn open() -> Self {
        Self {
            passed: 0.0,
            failed: f64::INFINITY,
            generator_limited: false,
        }
    }

    fn narrow(&mut self, rate: f64, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed = rate,
            Verdict::Slow(reached) => {
                self.passed = self.passed.max(reached);
                self.failed = rate;
                self.generator_limited = true;
            }
            Verdict::Lost {
                rate_pps,
                by_receiver,
            } => {
                self.failed = rate_pps.max(self.passed);
                self.generator_limited = by_receiver;
            }
        }
    }
}

/// Raises the rate until a probe fails, or lowers it until one passes.
fn bracket<E>(
    range: Range,
    probe: &mut impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<Option<Bracket>, E> {
    let mut rate = range.start;
    let mut step = range.step;
    let mut bracket = Bracket::open();
    bracket.narrow(rate, probe(rate)?);
    while bracket.passed == 0.0 {
        if rate <= range.lowest {
            return Ok(None);
        }
        rate = (rate / (step * step)).max(range.lowest);
        step = longer(step);
        bracket.narrow(rate, probe(rate)?);
    }
    while bracket.failed.is_infinite() && rate < range.highest {
        rate = (rate * step).min(range.highest);
        step = longer(step);
        bracket.narrow(rate, probe(rate)?);
    }
    Ok(Some(bracket))
}

fn longer(step: f64) -> f64 {
    (step * step).min(LONGEST_STEP)
}

fn bisect<E>(
    bracket: &mut Bracket,
    resolution: f64,
    probe: &mut impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<(), E> {
    while bracket.failed.is_finite() && bracket.failed > bracket.passed * resolution {
        let middle = (bracket.passed * bracket.failed).sqrt();
        bracket.narrow(middle, probe(middle)?);
    }
    Ok(())
}

/// Tries the rate for longer, and lower ones while it fails.
fn confirm<E>(
    mut found: Found,
    attempt: &mut impl FnMut(Attempt) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut steps_down = STEPS_DOWN.iter();
    loop {
        let rate_pps = found.rate_pps;
        let stage = Stage::Confirm;
        match Verdict::of(rate_pps, attempt(Attempt { rate_pps, stage })?) {
            Verdict::Passed => {
                found.confirmed = true;
                return Ok(found);
            }
            Verdict::Slow(reached) => {
                return Ok(Found {
                    rate_pps: reached,
                    confirmed: true,
                    generator_limited: true,
                });
            }
            Verdict::Lost { by_receiver, .. } => {
                found.generator_limited = by_receiver;
                let Some(step) = steps_down.next() else {
                    return Ok(found);
                };
                found.rate_pps *= 1.0 - step;
            }
        }
    }
}

#[cfg(test)]
mod tests;
