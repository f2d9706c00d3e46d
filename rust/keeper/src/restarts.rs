//! Schedules another process after one has died.

use std::time::{Duration, Instant};

/// Pause after the second death, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before another process is started.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Lifetime after which a process counts as healthy and the pauses start over.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// Schedule of restarts: at once after the first death, then after growing pauses.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    pub(super) deaths: u64,
    /// Start time of the present process, if another died before it.
    started: Option<Instant>,
    pause: Duration,
}

impl Restarts {
    /// Records a death; returns the pause before the next start.
    pub(super) fn died(&mut self, now: Instant) -> Duration {
        let is_first = self.deaths == 0;
        let had_good_life = |started| now.duration_since(started) >= GOOD_LIFE;
        let is_fresh = is_first || self.started.take().is_some_and(had_good_life);
        let longer = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause = if is_fresh { Duration::ZERO } else { longer };
        self.deaths += 1;
        self.pause
    }

    /// Records that another process runs.
    pub(super) fn started(&mut self, now: Instant) {
        self.started = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_replaced_at_once_and_then_after_growing_pauses() {
        let mut restarts = Restarts::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = restarts.died(now);
            pauses.push(pause.as_secs());
            now += pause;
            restarts.started(now);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 10, 10, 10, 10]);
        assert_eq!(restarts.deaths, 9);
    }

    #[test]
    fn a_process_that_lived_for_a_minute_is_replaced_at_once() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        assert_eq!(restarts.died(now), Duration::ZERO);
        restarts.started(now);
        assert_eq!(restarts.died(now + GOOD_LIFE / 2), FIRST_PAUSE);
        restarts.started(now + GOOD_LIFE);
        assert_eq!(restarts.died(now + GOOD_LIFE * 2), Duration::ZERO);
        restarts.started(now + GOOD_LIFE * 2);
        assert_eq!(restarts.died(now + GOOD_LIFE * 2), FIRST_PAUSE);
    }

    #[test]
    fn a_process_that_cannot_be_started_is_tried_again_after_growing_pauses() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        let pauses = [(); 4].map(|()| restarts.died(now).as_secs());
        assert_eq!(pauses, [0, 1, 2, 4]);
    }
}
