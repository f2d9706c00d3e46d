//! How sure a median is.

/// The share of intervals that hold the true median.
const CONFIDENCE: f64 = 0.95;

/// Where a median lies with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    /// Its lower end.
    pub(crate) low: f64,
    /// Its upper end.
    pub(crate) high: f64,
}

impl Interval {
    /// The interval between two order statistics (the sign test turned round): it supposes nothing
    /// about the distribution, and no chance is drawn. None of fewer than six values.
    ///
    /// Each value lies below the true median with probability ½, so the number that do is binomial;
    /// leaving `k` values out at each end misses the median with twice the probability of at most
    /// `k`. Of 9 values that is the second to the eighth (96.1 %).
    pub(crate) fn of_median(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let left_out = left_out(sorted.len())?;
        Some(Self {
            low: sorted[left_out],
            high: sorted[sorted.len() - 1 - left_out],
        })
    }
}

/// How many of `count` values may be left out at each end.
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
        let expected = [
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
        ];
        for (count, rank) in expected.into_iter().chain([(15, Some(3)), (20, Some(5))]) {
            assert_eq!(left_out(count), rank, "{count}");
        }
        assert_eq!(left_out(0), None);
    }

    #[test]
    fn of_nine_values_the_lowest_and_the_highest_are_left_out() {
        let values = [5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0];
        let interval = Interval {
            low: 2.0,
            high: 8.0,
        };
        assert_eq!(Interval::of_median(&values), Some(interval));
        assert_eq!(Interval::of_median(&values[..5]), None);
    }
}
