//! Waiting for a condition, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks of the condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// Checks `condition` until it returns a value; `None` if it does not before `deadline`.
///
/// Checks once more after the deadline, so that a machine that stalls does not fail a test.
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
