//! Histograms of single values, as a report has them, in the buckets of Prometheus.

/// The last value that a report counts by itself; the one after it stands for all larger ones.
const LAST: usize = 63;

/// Meaning of the values of a report's histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Packets or segments.
    Count,
    /// Times in units of 100 µs, rounded down.
    HundredMicroseconds,
}

/// A histogram for [`prometheus_client`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    /// A lower bound of the sum of counts, as large values are not known exactly; an estimate for times.
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bounds, and the observations above the previous bound and up to this one. The last bound is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// `counts[v]` is the number of observations of `v`.
    pub(super) fn of(counts: &[u64], scale: Scale) -> Self {
        let mut buckets = Vec::new();
        let mut from = 0;
        for last in scale.bounds() {
            let within = counts.iter().take(last + 1).skip(from);
            buckets.push((scale.upper(*last), within.sum()));
            from = last + 1;
        }
        buckets.push((f64::INFINITY, counts.iter().skip(from).sum()));
        let observed = counts.iter().enumerate();
        Self {
            sum: observed
                .map(|(value, count)| scale.typical(value) * *count as f64)
                .sum(),
            count: counts.iter().sum(),
            buckets,
        }
    }
}

impl Scale {
    /// The last values of all buckets but one. 50 packets are a full batch.
    fn bounds(self) -> &'static [usize] {
        match self {
            Self::Count => &[1, 2, 4, 8, 16, 32, 50, LAST],
            Self::HundredMicroseconds => &[0, 1, 3, 7, 15, 31, LAST],
        }
    }

    /// The upper bound of what is counted as `value`.
    fn upper(self, value: usize) -> f64 {
        match self {
            Self::Count => value as f64,
            // Decimal, as a tenth of a millisecond has no exact binary form.
            Self::HundredMicroseconds => (value + 1) as f64 / 10_000.0,
        }
    }

    /// Returns what is counted as `value`, on average.
    fn typical(self, value: usize) -> f64 {
        match self {
            Self::Count => value as f64,
            Self::HundredMicroseconds => (2 * value + 1) as f64 / 20_000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let mut counts = [0; 65];
        for (value, count) in [(0, 1), (1, 2), (2, 3), (3, 4), (50, 5), (63, 6), (64, 7)] {
            counts[value] = count;
        }
        let histogram = Histogram::of(&counts, Scale::Count);
        let within = [3, 3, 4, 0, 0, 0, 5, 6, 7];
        let bounds = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0, 63.0, f64::INFINITY];
        assert_eq!(
            histogram.buckets,
            bounds.into_iter().zip(within).collect::<Vec<_>>()
        );
        assert_eq!(histogram.count, 28);
        assert_eq!(histogram.sum, f64::from(2 + 6 + 12 + 250 + 378 + 448));
    }

    #[test]
    fn times_that_were_rounded_down_are_below_their_bound() {
        let mut counts = [0; 65];
        (counts[0], counts[1], counts[64]) = (10, 1, 1);
        let histogram = Histogram::of(&counts, Scale::HundredMicroseconds);
        assert_eq!(histogram.buckets[..2], [(0.0001, 10), (0.0002, 1)]);
        assert_eq!(histogram.buckets.last(), Some(&(f64::INFINITY, 1)));
        let expected = 10.0 * 0.00005 + 0.00015 + 0.00645;
        assert!((histogram.sum - expected).abs() < 1e-9, "{}", histogram.sum);
    }

    #[test]
    fn a_shorter_histogram_of_another_version_has_all_buckets() {
        let histogram = Histogram::of(&[1, 1], Scale::Count);
        assert_eq!(histogram.buckets.len(), 9);
        assert_eq!((histogram.count, histogram.sum), (2, 1.0));
    }
}
