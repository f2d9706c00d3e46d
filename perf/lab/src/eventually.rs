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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_checked_even_without_time_and_until_it_holds() {
        assert_eq!(eventually(Duration::ZERO, || Some(1)), Some(1));
        assert_eq!(eventually(Duration::ZERO, || None::<()>), None);
        let mut checks = 0;
        let third = || {
            checks += 1;
            (checks == 3).then_some(checks)
        };
        assert_eq!(eventually(Duration::from_secs(60), third), Some(3));
    }
}
