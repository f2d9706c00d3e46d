//! Finds the largest packet that reaches a host and is answered.
//!
//! Pure: time is a parameter, and packets are left to the caller:
//!
//! 1. It sends the echo requests of [`Probe::poll_transmit`].
//! 2. It passes their answers to [`Probe::handle_answer`], and a failure to send to [`Probe::handle_refused`].
//! 3. It calls [`Probe::handle_timeout`] when [`Probe::poll_timeout`] has passed.
//! 4. It stops as soon as [`Probe::poll_outcome`] has one.
//!
//! Decisions:
//!
//! - **Each round sends a small echo request and a large one.** The large one counts as lost only if the small one
//!   is answered. The small one goes first: behind a larger one, it would share its UDP GSO batch, and with that its
//!   fate at a firewall which looks at whole batches.
//! - **One loss proves nothing.** A size is given up after three rounds, and the smallest size that was given up is
//!   tried again in the end. An answer counts however late it is, and overrules what was given up.
//! - **Silence changes nothing**: only a size that was answered becomes a limit.
//! - **Sizes are multiples of 16**, as WireGuard pads packets to these: others would find the same limit.

use std::{
    collections::VecDeque,
    net::IpAddr,
    time::{Duration, Instant},
    vec,
};

/// The size of a small packet in bytes: it gets through everywhere.
const SMALL: u32 = 64;

/// WireGuard pads packets to multiples of this many bytes.
const STEP: u32 = 16;

/// Rounds without an answer after which a size, or a target, is given up.
const TRIES: u32 = 3;

/// Time to wait for an answer, in multiples of the longest round trip so far.
const ROUND_TRIPS: u32 = 4;
/// Shortest time to wait for an answer.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(200);
/// Longest time to wait for an answer.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// The most echo requests of a probe. Unless answers are lost by chance, the largest MTU needs about 100.
const MAX_ECHOES: usize = 128;

/// A probe of the path to one host.
#[derive(Debug)]
pub(super) struct Probe {
    target: IpAddr,
    /// The hosts to try if that one is silent.
    others: vec::IntoIter<IpAddr>,
    /// The interface's MTU, and the smallest one that it may have, in bytes.
    mtu: u32,
    floor: u32,
    /// The largest size that was answered, and the smallest that was given up.
    answered: u32,
    lost: Option<u32>,
    round: Round,
    /// Rounds of this size whose small echo was answered, but not the large one; rounds in a row without an answer.
    losses: u32,
    silence: u32,
    longest_rtt: Option<Duration>,
    /// All echo requests; their numbers are the sequence numbers.
    echoes: Vec<Echo>,
    transmits: VecDeque<Transmit>,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    /// The size of the large packet in bytes.
    size: u32,
    /// Whether the small echo was answered.
    is_answered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Echo {
    size: u32,
    sent: Instant,
}

/// An echo request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transmit {
    pub(super) to: IpAddr,
    pub(super) sequence: u16,
    /// The length of the IP packet in bytes.
    pub(super) size: u32,
}

/// Outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Packets of the interface's MTU are answered.
    Fits { target: IpAddr },
    /// Packets larger than `largest` bytes are not.
    Narrow { target: IpAddr, largest: u32 },
    /// Only packets smaller than the smallest possible MTU are answered.
    TooNarrow { target: IpAddr },
    /// Nobody answers, or not any more, or the answers contradict each other.
    Unknown,
}

impl Probe {
    /// Probes the path to the first of `targets` that answers. `None` if there is none, or if the MTU cannot become
    /// smaller.
    pub(super) fn new(targets: Vec<IpAddr>, mtu: u32, floor: u32, now: Instant) -> Option<Self> {
        let mut others = targets.into_iter();
        let target = others.next()?;
        if mtu <= floor {
            return None;
        }
        let round = Round {
            began: now,
            size: mtu,
            is_answered: false,
        };
        let mut probe = Self {
            target,
            others,
            mtu,
            floor,
            answered: 0,
            lost: None,
            round,
            losses: 0,
            silence: 0,
            longest_rtt: None,
            echoes: Vec::new(),
            transmits: VecDeque::new(),
            outcome: None,
        };
        probe.begin_round(now);
        Some(probe)
    }

    /// Call when `from` has answered the echo request with this sequence number.
    pub(super) fn handle_answer(&mut self, from: IpAddr, sequence: u16, now: Instant) {
        let echo = self.echoes.get(usize::from(sequence)).copied();
        let Some(echo) = echo.filter(|_| from == self.target && self.outcome.is_none()) else {
            return;
        };
        let rtt = now.saturating_duration_since(echo.sent);
        self.longest_rtt = self.longest_rtt.max(Some(rtt));
        self.silence = 0;
        if echo.size == SMALL {
            let is_latest = usize::from(sequence) + 2 == self.echoes.len();
            self.round.is_answered |= is_latest;
        } else if echo.size >= self.mtu {
            let target = self.target;
            self.outcome = Some(Outcome::Fits { target });
        } else if echo.size > self.answered {
            self.answered = echo.size;
            // What was given up may have been lost by chance, too.
            let is_refuted = self.lost.is_some_and(|lost| lost <= echo.size);
            if is_refuted {
                self.lost = Some(self.mtu);
            }
            self.losses = 0;
            self.begin_round(now);
        }
    }

    /// Call when an echo request cannot be sent.
    pub(super) fn handle_refused(&mut self, now: Instant) {
        if self.outcome.is_none() {
            self.leave_target(now);
        }
    }

    /// Call when [`Self::poll_timeout`] has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        if self.round.is_answered {
            self.losses += 1;
        } else {
            self.silence += 1;
        }
        if self.silence == TRIES {
            return self.leave_target(now);
        }
        if self.losses == TRIES {
            self.losses = 0;
            let was_given_up_before = self.lost == Some(self.round.size);
            if was_given_up_before {
                return self.conclude();
            }
            self.lost = Some(self.round.size);
        }
        self.begin_round(now);
    }

    /// An echo request to send now.
    pub(super) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is to be called; `None` if the probe is over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let patience = self.longest_rtt.map_or(LONGEST_PATIENCE, |rtt| {
            (ROUND_TRIPS * rtt).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
        });
        let is_over = self.outcome.is_some();
        (!is_over).then_some(self.round.began + patience)
    }

    /// Returns what the probe has found, once it is over.
    pub(super) fn poll_outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    fn begin_round(&mut self, now: Instant) {
        let size = self.next_size();
        self.round = Round {
            began: now,
            size,
            is_answered: false,
        };
        for size in [SMALL, size] {
            if self.echoes.len() == MAX_ECHOES {
                self.outcome = Some(Outcome::Unknown);
                return;
            }
            self.transmits.push_back(Transmit {
                to: self.target,
                sequence: self.echoes.len() as u16,
                size,
            });
            self.echoes.push(Echo { size, sent: now });
        }
    }

    /// The MTU at first; then the middle of the sizes that are possible; in the end the smallest that was given up.
    fn next_size(&self) -> u32 {
        let Some(lost) = self.lost else {
            return self.mtu;
        };
        // In steps: the largest size known to be answered, or the one below the floor; and those in between.
        let low = (self.answered / STEP).max(self.floor.div_ceil(STEP) - 1);
        let between = ((lost - 1) / STEP).saturating_sub(low);
        match between {
            0 => lost,
            _ => (low + between.div_ceil(2)) * STEP,
        }
    }

    /// Goes on to the next target, unless this one has answered before.
    fn leave_target(&mut self, now: Instant) {
        let has_answered = self.longest_rtt.is_some();
        match self.others.next().filter(|_| !has_answered) {
            Some(next) => {
                self.target = next;
                self.silence = 0;
                self.transmits.clear();
                self.begin_round(now);
            }
            None => self.outcome = Some(Outcome::Unknown),
        }
    }

    fn conclude(&mut self) {
        let target = self.target;
        self.outcome = Some(match self.answered {
            0 => Outcome::TooNarrow { target },
            largest => Outcome::Narrow { target, largest },
        });
    }
}

#[cfg(test)]
mod tests;
