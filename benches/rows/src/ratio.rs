//! The confidence of the figures of several rounds, or of their ratios.

use convoy_lab::measure::Sample;

/// The confidence level: the share of intervals that hold the true median.
const CONFIDENCE: f64 = 0.95;

/// `0.97 (0.95–1.01)`: the median and its 95 % interval, or if there is none, the lowest and highest value.
pub fn text(sample: &Sample) -> String {
    let [low, high] = interval(sample).unwrap_or([sample.min, sample.max]);
    format!("{:.2} ({low:.2}–{high:.2})", sample.median)
}

/// Returns whether the values meet a target: in the whole interval, only at the median, or not.
pub(crate) fn judge(sample: &Sample, holds: impl Fn(f64) -> bool) -> &'static str {
    let is_sure = interval(sample).is_some_and(|ends| ends.into_iter().all(&holds));
    match holds(sample.median) {
        _ if is_sure => "yes",
        true => "median",
        false => "**no**",
    }
}

/// The confidence interval of the median; `None` for fewer than six rounds.
///
/// It lies between two order statistics (an inverted sign test). It assumes nothing about the distribution and needs
/// no random numbers. Of 9 values they are the second and the eighth (96.1 %).
fn interval(sample: &Sample) -> Option<[f64; 2]> {
    let mut sorted = sample.values.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let left_out = left_out(sorted.len())?;
    Some([sorted[left_out], sorted[sorted.len() - 1 - left_out]])
}

/// Returns how many of `count` values to leave out at each end of an interval.
///
/// Each value lies below the true median with probability ½, so the number of values below it is binomial.
/// Leaving out `k` values at each end misses the median with twice the probability of at most `k`.
fn left_out(count: usize) -> Option<usize> {
    let tolerated = (1.0 - CONFIDENCE) / 2.0;
    let mut exactly = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut at_most = exactly;
    let mut left_out = None;
    for below in 0..count / 2 {
        if at_most > tolerated {
            break;
        }
        left_out = Some(below);
        exactly *= (count - below) as f64 / (below + 1) as f64;
        at_most += exactly;
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        // As in any table of the sign test for a two-sided 5 %.
        assert_eq!([0, 5].map(left_out), [None; 2]);
        for (count, rank) in [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5)] {
            assert_eq!(left_out(count), Some(rank), "{count}");
        }
        let sample = Sample::of([5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0].into());
        assert_eq!(interval(&sample.unwrap()), Some([2.0, 8.0]));
    }
}
