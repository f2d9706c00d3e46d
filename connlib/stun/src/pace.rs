//! The bound of requests in a minute.

use std::{collections::VecDeque, time::Duration};

/// Most requests to all servers together in any minute, whatever happens; further ones wait. Without changes of the
/// network, four servers that lose as many messages as they can need 56.
pub const MAX_REQUESTS_PER_MINUTE: usize = 64;

const MINUTE: Duration = Duration::from_secs(60);

/// The requests of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    sent: VecDeque<Duration>,
}

impl Pace {
    /// Returns the time from which a request may be sent.
    pub(crate) fn free_at(&self) -> Duration {
        let is_full = self.sent.len() >= MAX_REQUESTS_PER_MINUTE;
        let oldest = self.sent.front().filter(|_| is_full);
        oldest.map_or(Duration::ZERO, |at| at.saturating_add(MINUTE))
    }

    /// Counts a request, at a time not before [`Self::free_at`].
    pub(crate) fn count(&mut self, now: Duration) {
        if self.sent.len() == MAX_REQUESTS_PER_MINUTE {
            self.sent.pop_front();
        }
        self.sent.push_back(now);
    }
}
