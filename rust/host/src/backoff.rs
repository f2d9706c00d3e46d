//! Delays restoration while another program keeps removing the same things.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first restoration.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// Pauses that double while others keep interfering, up to [`LONGEST`].
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    /// The earliest time of the next restoration; `None` if there is no pause.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.last.map(|(at, pause)| at + pause)
    }

    /// Notes a restoration.
    pub(crate) fn restored(&mut self, now: Instant) {
        let pause = match self.last {
            // Nobody has interfered for a while: a new incident.
            Some((at, pause)) if now < at + pause * 4 => (pause * 2).min(LONGEST),
            _ => SHORTEST,
        };
        self.last = Some((now, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_peace() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        assert_eq!(backoff.earliest(), None);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            backoff.restored(now);
            let pause = backoff.earliest().unwrap() - now;
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses[..3], [1, 2, 4].map(|n| SHORTEST * n));
        assert_eq!(pauses[11], LONGEST);
        backoff.restored(now + LONGEST * 4);
        assert_eq!(backoff.earliest(), Some(now + LONGEST * 4 + SHORTEST));
    }
}
