//! Interleaved rounds: drift over time, and the effect of the run before, then favour no contender.

use std::time::Instant;

/// `all`, beginning with another one in each round: each is at each place about equally often.
pub(crate) fn rotated<T>(all: &[T], round: u32) -> impl Iterator<Item = &T> {
    let first = round as usize % all.len().max(1);
    let (before, from) = all.split_at(first);
    from.iter().chain(before)
}

/// Tells whoever watches how much is done, and how long the rest takes.
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

    /// Prints that one more is done, which `what` describes.
    pub(crate) fn step(&mut self, what: &str) {
        self.done += 1;
        let left = self.begin.elapsed() / self.done * self.total.saturating_sub(self.done);
        let minutes = left.as_secs_f64() / 60.0;
        eprintln!(
            "[{}/{}, {minutes:.1} min left] {what}",
            self.done, self.total
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let order = |round| {
            rotated(&["a", "b", "c"], round)
                .copied()
                .collect::<String>()
        };
        assert_eq!([order(0), order(1), order(5)], ["abc", "bca", "cab"]);
        assert_eq!(rotated::<u8>(&[], 3).count(), 0);
    }
}
