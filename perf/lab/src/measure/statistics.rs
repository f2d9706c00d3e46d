//! Medians and spreads of repeated runs.

use serde::{Deserialize, Serialize};

/// Repeated measurements of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// In measurement order.
    pub values: Vec<f64>,
}

impl Sample {
    /// `None` if there are no values.
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let [below, above] = [(sorted.len() - 1) / 2, sorted.len() / 2].map(|at| sorted[at]);
        Some(Self {
            median: f64::midpoint(below, above),
            min,
            max,
            values,
        })
    }

    /// The ratios of two figures measured in pairs, one pair per round. Pairs without a finite ratio are
    /// omitted.
    pub fn of_ratios(a: &[f64], b: &[f64]) -> Option<Self> {
        let ratios = a.iter().zip(b).map(|(a, b)| a / b);
        Self::of(ratios.filter(|ratio| ratio.is_finite()).collect())
    }

    /// Range from lowest to highest, as a share of the median.
    pub fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_lies_between_the_middle_two() {
        let sample = Sample::of(vec![9.0, 12.0, 10.0]).unwrap();
        assert_eq!((sample.median, sample.min, sample.max), (10.0, 9.0, 12.0));
        assert_eq!(sample.spread(), 0.3);
        assert_eq!(sample.values, [9.0, 12.0, 10.0]);
        assert_eq!(Sample::of(vec![4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(Sample::of(Vec::new()), None);
    }

    #[test]
    fn ratios_are_taken_within_each_round_and_one_that_measured_nothing_has_none() {
        let ratios = Sample::of_ratios(&[2.0, 7.0, 9.0], &[1.0, 0.0, 3.0]).unwrap();
        assert_eq!(ratios.values, [2.0, 3.0]);
    }
}
