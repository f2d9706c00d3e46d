//! Outcomes of relayed connections and their directions, and the sizes that all ways of relaying share.

use std::{io, time::Duration};

/// The smallest buffer.
pub const MIN_BUFFER: usize = 8 << 10;
/// Buffers moved in one direction before the other has its turn.
pub(super) const ROUNDS: u32 = 8;

/// The end of a relayed connection.
#[derive(Debug)]
pub enum Ended {
    /// Both ends have closed their direction.
    Closed,
    /// One end failed.
    Failed(io::Error),
}

/// Why a direction ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// Its source is gone, so that nothing can reach that end either.
    Read(io::Error),
    /// Its destination takes no more, but may have sent something.
    Write(io::Error),
    /// Its source is gone, and its destination has not taken the rest in time.
    Stuck(io::Error),
}

/// Outcome of each direction; `None` if the other one's failure ended it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) outbound: Option<Result<(), Failure>>,
    pub(super) inbound: Option<Result<(), Failure>>,
}

impl Outcome {
    /// Returns whether the first and the second connection can still take bytes.
    pub(super) fn are_alive(&self) -> (bool, bool) {
        let (out, back) = (&self.outbound, &self.inbound);
        let is_first_gone = is_source_gone(out) || matches!(back, Some(Err(Failure::Write(_))));
        let is_second_gone = is_source_gone(back) || matches!(out, Some(Err(Failure::Write(_))));
        (!is_first_gone, !is_second_gone)
    }

    /// Returns what is left of the time in which the end that lives may take what was sent before.
    pub(super) fn left_of(&self, limit: Duration) -> Duration {
        let is_stuck = |it: &Option<_>| matches!(it, Some(Err(Failure::Stuck(_))));
        match is_stuck(&self.outbound) || is_stuck(&self.inbound) {
            true => Duration::ZERO,
            false => limit,
        }
    }

    pub(super) fn ended(self) -> Ended {
        let results = [self.outbound, self.inbound].into_iter().flatten();
        match results.filter_map(Result::err).next() {
            None => Ended::Closed,
            Some(Failure::Read(error) | Failure::Write(error) | Failure::Stuck(error)) => {
                Ended::Failed(error)
            }
        }
    }
}

pub(super) fn is_source_gone(direction: &Option<Result<(), Failure>>) -> bool {
    matches!(direction, Some(Err(Failure::Read(_) | Failure::Stuck(_))))
}
