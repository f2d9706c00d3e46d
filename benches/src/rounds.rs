//! Interleaved rounds, so that neither drift nor the effect of the previous run favours a contender.

use std::time::Instant;

/// Rotates `all` by one place per round, so that each item takes each place about equally often.
pub(crate) fn rotated<T>(all: impl IntoIterator<Item = T>, round: u32) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().collect();
    let first = round as usize % all.len().max(1);
    all.rotate_left(first);
    all
}

/// Prints progress and the estimated time left.
pub(crate) struct Progress {
    begin: Instant,
    done: u32,
    total: u32,
}

impl Progress {
    pub(crate) fn of(total: usize) -> Self {
        Self {
            begin: Instant::now(),
            done: 0,
            total: total as u32,
        }
    }

    /// Prints that one more step is done.
    pub(crate) fn step(&mut self, what: &str) {
        self.done += 1;
        let left = self.begin.elapsed() / self.done * self.total.saturating_sub(self.done);
        let (done, total, minutes) = (self.done, self.total, left.as_secs_f64() / 60.0);
        eprintln!("[{done}/{total}, {minutes:.1} min left] {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let order = |round| rotated(["a", "b", "c"], round).concat();
        assert_eq!([order(0), order(1), order(5)], ["abc", "bca", "cab"]);
        assert!(rotated([0; 0], 3).is_empty());
    }
}
