//! Whether the event loop is the bottleneck.

use std::time::Duration;

/// What is judged at a time: many of the scheduler's time slices, and soon enough for a person.
const WINDOW: Duration = Duration::from_millis(100);
/// With so much of a processor the event loop is the bottleneck.
const BOTTLENECK: f64 = 0.9;
/// With so little it is none, even if it has to read the TUN, too: reading small packets takes up to
/// a third of what it then does.
const RELIEVED: f64 = 0.5;

/// The share of a processor that the event loop's thread has.
///
/// Where that is short of all of one, something else sets the limit: too few packets, or too few
/// processors for all that runs. Another thread that reads the TUN would then only cost more.
#[derive(Debug)]
pub(crate) struct Load {
    began: Duration,
    had: Duration,
    is_bottleneck: bool,
}

impl Load {
    /// `had`: processor time of the thread until now.
    pub(crate) fn new(now: Duration, had: Duration) -> Self {
        Self {
            began: now,
            had,
            is_bottleneck: true,
        }
    }

    /// Tells whether the event loop is the bottleneck, where that has changed. `had` is asked once a
    /// window: it is a system call.
    pub(crate) fn judge(&mut self, now: Duration, had: impl FnOnce() -> Duration) -> Option<bool> {
        let passed = now.saturating_sub(self.began);
        if passed < WINDOW {
            return None;
        }
        let had = had();
        let share = had.saturating_sub(self.had).as_secs_f64() / passed.as_secs_f64();
        (self.began, self.had) = (now, had);
        let was_bottleneck = self.is_bottleneck;
        let enough = if was_bottleneck { RELIEVED } else { BOTTLENECK };
        self.is_bottleneck = share >= enough;
        (self.is_bottleneck != was_bottleneck).then_some(self.is_bottleneck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of one window after the other, in each of which the thread had these milliseconds.
    fn judgements(milliseconds: &[u64]) -> Vec<Option<bool>> {
        let mut load = Load::new(WINDOW, Duration::ZERO);
        let (mut now, mut total) = (WINDOW, Duration::ZERO);
        let judge = |had: &u64| {
            now += WINDOW;
            total += Duration::from_millis(*had);
            load.judge(now, || total)
        };
        milliseconds.iter().map(judge).collect()
    }

    #[test]
    fn a_thread_with_all_of_a_processor_is_the_bottleneck_until_it_has_half() {
        let told = [Some(false), None, Some(true), None, None, Some(false)];
        assert_eq!(judgements(&[30, 88, 92, 60, 52, 48]), told);
    }

    #[test]
    fn nothing_is_asked_before_a_window_is_over() {
        let mut load = Load::new(Duration::ZERO, Duration::ZERO);
        let soon = WINDOW - Duration::from_nanos(1);
        assert_eq!(load.judge(soon, || panic!("asked too early")), None);
        assert_eq!(load.judge(WINDOW, || Duration::ZERO), Some(false));
    }

    #[test]
    fn a_long_wait_is_one_window() {
        let mut load = Load::new(Duration::ZERO, Duration::ZERO);
        let later = Duration::from_secs(60);
        assert_eq!(load.judge(later, || WINDOW), Some(false));
        assert_eq!(load.judge(later + WINDOW, || WINDOW * 2), Some(true));
    }
}
