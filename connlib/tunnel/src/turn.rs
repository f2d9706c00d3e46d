//! Fairness within a tick: how long each kind of work may take.

use std::time::Duration;

use crate::clock;

/// The longest turn.
const LONGEST: Duration = Duration::from_micros(800);
/// When receiving and intake from the TUN stop, counted from the beginning of the tick: this leaves time to send
/// before 2 ms have passed.
pub(crate) const RECEIVING: Duration = Duration::from_micros(1_000);
pub(crate) const INTAKE: Duration = Duration::from_micros(1_500);

/// Limits the time of one kind of work in a tick; of a direction, to the time that the other took last.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Duration,
    share: Duration,
    over_at: Duration,
}

impl Turn {
    /// `share`: how long the work may go on; longer than the longest turn counts as that.
    pub(crate) fn begin(share: Duration) -> Self {
        let began = clock::now();
        Self {
            began,
            share: share.min(LONGEST),
            over_at: began + LONGEST,
        }
    }

    /// Ends the turn at this time at the latest.
    pub(crate) fn until(self, latest: Duration) -> Self {
        Self {
            over_at: self.over_at.min(latest),
            ..self
        }
    }

    /// The time that the turn has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        clock::now().saturating_sub(self.began)
    }

    /// Returns whether the turn has taken less time than its share, and is not over.
    pub(crate) fn has_share_left(&self) -> bool {
        let now = clock::now();
        now < (self.began + self.share).min(self.over_at)
    }

    /// Returns whether the turn has lasted as long as it may: the rest waits for the next tick.
    pub(crate) fn is_over(&self) -> bool {
        clock::now() >= self.over_at
    }
}
