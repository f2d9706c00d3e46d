//! Interleaved rounds, so that neither drift nor the effect of the previous run favours a contender.

use std::time::Instant;

use anyhow::Result;

/// Rotates `all` by one place per round, so that each item takes each place about equally often.
pub(crate) fn rotated<T>(all: impl IntoIterator<Item = T>, round: u32) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().collect();
    let first = round as usize % all.len().max(1);
    all.rotate_left(first);
    all
}

/// All items in each round, [rotated].
pub(crate) fn interleaved<T: Copy>(all: &[T], rounds: u32) -> Vec<(u32, T)> {
    let round = |round| rotated(all, round).into_iter().map(move |it| (round, *it));
    (0..rounds).flat_map(round).collect()
}

/// Performs the steps in order, and prints what each returns with the estimated time left.
pub(crate) fn perform<T>(steps: Vec<T>, mut step: impl FnMut(T) -> Result<String>) -> Result<()> {
    let (began, total) = (Instant::now(), steps.len() as u32);
    for (done, one) in (1..).zip(steps) {
        let what = step(one)?;
        let left = began.elapsed() / done * (total - done);
        let minutes = left.as_secs_f64() / 60.0;
        eprintln!("[{done}/{total}, {minutes:.1} min left] {what}");
    }
    Ok(())
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
