//! Medians and spreads over repeated runs.

use serde::{Deserialize, Serialize};

/// Repeated measurements of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The middle one; between the middle two where their number is even.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// In the order in which they were measured.
    pub values: Vec<f64>,
}

impl Sample {
    /// None where nothing was measured.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            median: median(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            values,
        })
    }

    /// The ratios of two figures that were measured in pairs, one of each a round. A pair without a
    /// finite ratio is left out.
    #[must_use]
    pub fn of_ratios(a: &[f64], b: &[f64]) -> Option<Self> {
        let ratios = a.iter().zip(b).map(|(a, b)| a / b);
        Self::of(ratios.filter(|ratio| ratio.is_finite()).collect())
    }

    /// From the lowest to the highest, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], upper)
    } else {
        upper
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        let sample = Sample::of(vec![3.0, 1.0, 100.0]).unwrap();
        assert_eq!((sample.median, sample.min, sample.max), (3.0, 1.0, 100.0));
        assert_eq!(sample.values, [3.0, 1.0, 100.0]);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Sample::of(vec![4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Sample::of(Vec::new()), None);
    }

    #[test]
    fn the_spread_is_a_share_of_the_median() {
        assert_eq!(Sample::of(vec![9.0, 10.0, 12.0]).unwrap().spread(), 0.3);
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let ratios = Sample::of_ratios(&[2.0, 9.0, 8.0], &[1.0, 3.0, 2.0]).unwrap();
        assert_eq!(ratios.values, [2.0, 3.0, 4.0]);
        assert_eq!((ratios.median, ratios.min, ratios.max), (3.0, 2.0, 4.0));
    }

    #[test]
    fn a_round_that_measured_nothing_has_no_ratio() {
        assert_eq!(
            Sample::of_ratios(&[1.0, 4.0], &[0.0, 2.0]).unwrap().values,
            [2.0]
        );
    }
}
