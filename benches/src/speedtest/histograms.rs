//! How full batches are, value by value.

use std::ops::RangeInclusive;

use serde::Deserialize;

/// What the daemon that sends has counted in one test.
#[derive(Clone, Debug, Deserialize)]
pub struct Histograms {
    /// Packets in a TUN read.
    pub packets_per_read: Histogram,
    /// Packets in a batch that went to the event loop.
    pub packets_per_batch: Histogram,
    /// Datagrams in a UDP send.
    pub segments_per_send: Histogram,
}

/// Entry `v` is how often the value `v` was seen.
#[derive(Clone, Debug, Deserialize)]
pub struct Histogram(Vec<u64>);

impl Histogram {
    /// How much of what moved any packet has moved as many as `range` says.
    #[must_use]
    pub fn share(&self, range: &RangeInclusive<usize>) -> Option<f64> {
        let within = self.filled().filter(|(value, _)| range.contains(value));
        let within: u64 = within.map(|(_, count)| count).sum();
        let all = self.total();
        (all > 0).then(|| within as f64 / all as f64)
    }

    /// Half have moved no more, and half no fewer.
    #[must_use]
    pub fn median(&self) -> Option<usize> {
        let half = self.total().div_ceil(2);
        let mut seen = 0;
        self.filled().find_map(|(value, count)| {
            seen += count;
            (seen >= half).then_some(value)
        })
    }

    /// A read that brought nothing is no batch.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().skip(1)
    }

    fn total(&self) -> u64 {
        self.filled().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_the_median_are_of_what_has_moved_something() {
        let mut counts = vec![0; 65];
        (counts[0], counts[1], counts[20], counts[64]) = (1_000, 2, 5, 3);
        let histogram = Histogram(counts);
        assert_eq!(histogram.share(&(10..=20)), Some(0.5));
        assert_eq!(histogram.median(), Some(20));
        assert_eq!(histogram.share(&(1..=1)), Some(0.2));
        assert_eq!(histogram.share(&(21..=usize::MAX)), Some(0.3));
        assert_eq!(Histogram(vec![7]).share(&(1..=1)), None);
        assert_eq!(Histogram(vec![7]).median(), None);
    }
}
