//! Waiting for a condition, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// How often the condition is checked.
const INTERVAL: Duration = Duration::from_millis(5);

/// Checks `condition` until it gives something; `None` if it did not within `deadline`.
///
/// The condition is checked once more when the deadline has passed, so that a machine that was
/// stalled does not fail a test.
pub fn eventually<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        let last = Instant::now() >= end;
        let outcome = condition();
        if outcome.is_some() || last {
            return outcome;
        }
        thread::sleep(INTERVAL);
    }
}
