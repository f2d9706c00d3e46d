//! Fairness within a tick: how long each kind of work may take.

use std::time::Duration;

use crate::clock;

/// The longest turn. With timers and a system call or two, a tick stays below 2 ms.
const LONGEST: Duration = Duration::from_micros(800);

/// Limits the time of one kind of work in a tick; of a direction, to the time that the other took last.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Duration,
    share: Duration,
}

impl Turn {
    /// `share`: how long the work may go on; longer than the longest turn counts as that.
    pub(crate) fn begin(share: Duration) -> Self {
        Self {
            began: clock::now(),
            share: share.min(LONGEST),
        }
    }

    /// The time that the turn has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        clock::now().saturating_sub(self.began)
    }

    /// Whether the turn has taken less time than its share.
    pub(crate) fn has_share_left(&self) -> bool {
        self.elapsed() < self.share
    }

    /// Whether the turn has lasted as long as any may: the rest waits for the next tick.
    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= LONGEST
    }
}
