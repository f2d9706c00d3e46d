//! What the event loop has time for besides its own work.

use std::time::Duration;

/// What is judged at a time: many of the scheduler's time slices, and soon enough for a person.
const WINDOW: Duration = Duration::from_millis(100);
/// Reading small packets takes up to a third of the time of a loop that reads the TUN, too.
const READS: Duty = Duty::new(0.5, 0.9);
/// To write the TUN goes through the kernel up to the receiving socket. A loop that does it keeps the
/// sender waiting before it has all of a processor.
const WRITES: Duty = Duty::new(0.5, 0.7);

/// Watches the share of a processor that the event loop's thread has.
///
/// Where that is short of all of one, something else sets the limit: too few packets, or too few
/// processors for all that runs. Other threads that read and write the TUN would then only cost more.
#[derive(Debug)]
pub(crate) struct Load {
    began: Duration,
    had: Duration,
    reads: Duty,
    writes: Duty,
}

/// What the event loop does alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alone {
    /// Reads the TUN.
    pub(crate) reads: bool,
    /// Writes the TUN.
    pub(crate) writes: bool,
}

impl Load {
    /// `had`: processor time of the thread until now. At first the loop does nothing alone.
    pub(crate) fn new(now: Duration, had: Duration) -> Self {
        Self {
            began: now,
            had,
            reads: READS,
            writes: WRITES,
        }
    }

    /// Tells what the event loop is to do alone, where that has changed. `had` is asked once a window:
    /// it is a system call.
    pub(crate) fn judge(&mut self, now: Duration, had: impl FnOnce() -> Duration) -> Option<Alone> {
        let passed = now.saturating_sub(self.began);
        if passed < WINDOW {
            return None;
        }
        let had = had();
        let share = had.saturating_sub(self.had).as_secs_f64() / passed.as_secs_f64();
        (self.began, self.had) = (now, had);
        let has_changed = self.reads.judge(share) | self.writes.judge(share);
        has_changed.then_some(Alone {
            reads: self.reads.is_taken,
            writes: self.writes.is_taken,
        })
    }
}

/// Work that another thread can do, too.
#[derive(Clone, Copy, Debug)]
struct Duty {
    /// With less of a processor the loop takes it on,
    take: f64,
    /// and with so much it gives it up.
    leave: f64,
    is_taken: bool,
}

impl Duty {
    const fn new(take: f64, leave: f64) -> Self {
        Self {
            take,
            leave,
            is_taken: false,
        }
    }

    /// Whether that has changed with this share of a processor.
    fn judge(&mut self, share: f64) -> bool {
        let limit = if self.is_taken { self.leave } else { self.take };
        let was_taken = std::mem::replace(&mut self.is_taken, share < limit);
        self.is_taken != was_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Alone = Alone {
        reads: false,
        writes: false,
    };
    const ALL: Alone = Alone {
        reads: true,
        writes: true,
    };

    /// What is told of one window after the other, in each of which the thread had these milliseconds.
    fn judgements(milliseconds: &[u64]) -> Vec<Option<Alone>> {
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
    fn duties_are_left_one_after_the_other_and_taken_on_together() {
        let reads = Alone {
            reads: true,
            writes: false,
        };
        let told = [
            (30, Some(ALL)),
            (68, None),
            (72, Some(reads)),
            (60, None),
            (92, Some(NOTHING)),
            (52, None),
            (48, Some(ALL)),
            (95, Some(NOTHING)),
        ];
        assert_eq!(
            judgements(&told.map(|(had, _)| had)),
            told.map(|(_, said)| said)
        );
    }

    #[test]
    fn nothing_is_asked_before_a_window_is_over() {
        let mut load = Load::new(Duration::ZERO, Duration::ZERO);
        let soon = WINDOW - Duration::from_nanos(1);
        assert_eq!(load.judge(soon, || panic!("asked too early")), None);
        assert_eq!(load.judge(WINDOW, || Duration::ZERO), Some(ALL));
    }

    #[test]
    fn a_long_wait_is_one_window() {
        let mut load = Load::new(Duration::ZERO, Duration::ZERO);
        let later = Duration::from_secs(60);
        assert_eq!(load.judge(later, || WINDOW), Some(ALL));
        assert_eq!(load.judge(later + WINDOW, || WINDOW * 2), Some(NOTHING));
    }
}
