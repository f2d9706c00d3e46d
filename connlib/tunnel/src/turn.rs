//! Fairness within a tick: the time that is spent on one direction.

use std::time::Duration;

use crate::clock;

/// The longest turn. With timers and a system call or two, a tick stays below 2 ms.
const LONGEST: Duration = Duration::from_micros(800);

/// Work in one direction, until it has taken as long as the other direction took last.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Duration,
    share: Duration,
}

impl Turn {
    /// `share`: the time that the other direction took.
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

    /// Whether there is time for more, if the other direction is idle meanwhile or has had its share.
    pub(crate) fn has_share_left(&self) -> bool {
        self.elapsed() < self.share
    }

    /// Whether even work that has begun must wait for the next tick.
    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= LONGEST
    }
}
