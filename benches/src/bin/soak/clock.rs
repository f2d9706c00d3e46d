//! Seconds since the load began.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Seconds since the load began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// Sleeps until `at`, in seconds; not at all when that is past.
    pub(crate) fn sleep_until(&self, at: f64) {
        let at = self.0 + Duration::from_secs_f64(at.max(0.0));
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}
