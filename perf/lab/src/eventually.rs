//! Waiting for a condition, with a deadline.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How often the condition is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// Looks at `condition` until it gives something; `None` if it did not within `deadline`.
///
/// The condition is looked at once more when the deadline has passed, so that a machine that was
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
    fn a_condition_is_looked_at_even_without_time() {
        assert_eq!(eventually(Duration::ZERO, || Some(1)), Some(1));
        assert_eq!(eventually(Duration::ZERO, || None::<()>), None);
    }

    #[test]
    fn waiting_ends_when_the_condition_holds() {
        let mut looks = 0;
        let seen = eventually(Duration::from_secs(60), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(seen, Some(3));
    }
}
