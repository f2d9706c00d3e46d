//! Interleaved rounds: drift over time, and the effect of the run before, then favour no contender.

use std::time::Instant;

/// `all`, beginning with another one in each round: each is at each place about equally often.
pub(crate) fn rotated<T>(all: impl IntoIterator<Item = T>, round: u32) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().collect();
    let first = round as usize % all.len().max(1);
    all.rotate_left(first);
    all
}

/// Prints how much is done, and how long the rest takes.
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

    /// Prints that one more is done.
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
