//! Convoy against the best peer of a row. Pure.

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use super::{
    interval::Interval,
    rows::{Must, Row},
};

/// One contestant's figures of a row, by repetition; none where a test failed.
#[derive(Debug, Clone)]
pub struct Series {
    /// Of the contestant.
    pub name: String,
    /// By repetition.
    pub values: Vec<Option<f64>>,
}

/// What came out of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The peer with the best median.
    pub best_peer: Option<String>,
    /// Convoy's figure divided by that peer's in the same repetition.
    pub ratio: Option<Estimate>,
    /// What is asked of Convoy, for people.
    pub must: String,
    /// Whether that holds.
    pub verdict: Verdict,
}

/// A median of what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Of `values`.
    pub median: f64,
    /// None of fewer than six values.
    pub interval: Option<Interval>,
    /// By repetition, without those that failed.
    pub values: Vec<f64>,
}

/// Whether the must holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// In the whole interval.
    Holds,
    /// At the median; the interval reaches beyond the limit, or there is none.
    HoldsAtTheMedian,
    /// Not at the median.
    Fails,
    /// Nothing to compare.
    Unknown,
}

/// Compares `convoy` with the best of `peers`.
#[must_use]
pub fn compare(row: Row, convoy: &Series, peers: &[Series]) -> Comparison {
    let best = best(row.more_is_better(), peers);
    let ratio = best.and_then(|best| Estimate::of(ratios(convoy, best)));
    let must = row.must();
    let verdict = match must {
        Must::RatioAtLeast(_) | Must::RatioAtMost(_) => judge(must, ratio.as_ref()),
        Must::AtMost(_) => judge(must, Estimate::of(present(convoy)).as_ref()),
    };
    Comparison {
        best_peer: best.map(|best| best.name.clone()),
        ratio,
        must: told(must),
        verdict,
    }
}

impl Series {
    /// Of the repetitions that have a figure.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        Sample::of(present(self)).map(|sample| sample.median)
    }
}

impl Estimate {
    fn of(values: Vec<f64>) -> Option<Self> {
        let interval = Interval::of_median(&values);
        let Sample { median, values, .. } = Sample::of(values)?;
        Some(Self {
            median,
            interval,
            values,
        })
    }
}

/// The one with the best median.
#[must_use]
pub fn best(more_is_better: bool, peers: &[Series]) -> Option<&Series> {
    let medians = peers.iter().filter_map(|peer| Some((peer.median()?, peer)));
    let sign = if more_is_better { 1.0 } else { -1.0 };
    medians
        .max_by(|(a, _), (b, _)| (a * sign).total_cmp(&(b * sign)))
        .map(|(_, peer)| peer)
}

/// Of the repetitions in which both have a figure, and the peer's is not zero.
#[must_use]
pub fn ratios(convoy: &Series, peer: &Series) -> Vec<f64> {
    let pairs = convoy.values.iter().zip(&peer.values);
    let ratios = pairs.filter_map(|(convoy, peer)| Some((*convoy)? / (*peer)?));
    ratios.filter(|ratio| ratio.is_finite()).collect()
}

fn present(series: &Series) -> Vec<f64> {
    series.values.iter().copied().flatten().collect()
}

fn judge(must: Must, estimate: Option<&Estimate>) -> Verdict {
    let Some(Estimate {
        median, interval, ..
    }) = estimate
    else {
        return Verdict::Unknown;
    };
    let holds = |value: f64| match must {
        Must::RatioAtLeast(limit) => value >= limit,
        Must::RatioAtMost(limit) | Must::AtMost(limit) => value <= limit,
    };
    let surely = interval.is_some_and(|Interval { low, high }| holds(low) && holds(high));
    match (surely, holds(*median)) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::HoldsAtTheMedian,
        (false, false) => Verdict::Fails,
    }
}

fn told(must: Must) -> String {
    match must {
        Must::RatioAtLeast(limit) => format!("≥ {limit} ×"),
        Must::RatioAtMost(limit) => format!("≤ {limit} ×"),
        Must::AtMost(limit) => format!("≤ {limit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[f64]) -> Series {
        Series {
            name: name.to_owned(),
            values: values.iter().map(|&value| Some(value)).collect(),
        }
    }

    #[test]
    fn the_best_peer_has_the_best_median_and_not_the_best_single_value() {
        let peers = [
            series("lucky", &[1.0, 2.0, 9.0]),
            series("steady", &[3.0, 3.0, 3.0]),
        ];
        let best = |row: Row| best(row.more_is_better(), &peers).unwrap().name.clone();
        assert_eq!(best(Row::TcpUp), "steady");
        assert_eq!(best(Row::PingIdle), "lucky", "less is better");
    }

    #[test]
    fn a_peer_that_never_had_a_figure_is_not_the_best() {
        let mut absent = series("absent", &[]);
        absent.values = vec![None, None];
        let peers = [absent, series("slow", &[1.0, 1.0])];
        assert_eq!(best(true, &peers).unwrap().name, "slow");
        assert_eq!(best(false, &peers).unwrap().name, "slow");
    }

    #[test]
    fn ratios_are_paired_within_a_repetition() {
        let convoy = series("convoy", &[2.0, 9.0, 8.0]);
        let mut peer = series("peer", &[1.0, 3.0, 2.0]);
        assert_eq!(ratios(&convoy, &peer), [2.0, 3.0, 4.0]);
        peer.values[1] = None;
        peer.values[2] = Some(0.0);
        assert_eq!(
            ratios(&convoy, &peer),
            [2.0],
            "a pair without a ratio is left out"
        );
    }

    #[test]
    fn a_must_holds_surely_only_if_the_whole_interval_keeps_it() {
        let peer = [series("peer", &[1.0; 9])];
        let verdict = |row, convoy: [f64; 9]| compare(row, &series("convoy", &convoy), &peer);
        let mut values = [1.5; 9];
        assert_eq!(verdict(Row::TcpUp, values).verdict, Verdict::Holds);
        values[..2].fill(1.2);
        let comparison = verdict(Row::TcpUp, values);
        assert_eq!(comparison.verdict, Verdict::HoldsAtTheMedian);
        let interval = comparison.ratio.unwrap().interval.unwrap();
        assert_eq!((interval.low, interval.high), (1.2, 1.5));
        assert_eq!(verdict(Row::TcpUp, [1.2; 9]).verdict, Verdict::Fails);
        assert_eq!(verdict(Row::Cpu, [0.7; 9]).verdict, Verdict::Holds);
        assert_eq!(verdict(Row::Cpu, [0.9; 9]).verdict, Verdict::Fails);
    }

    #[test]
    fn memory_is_judged_by_itself_and_few_repetitions_are_never_sure() {
        let peers = [series("peer", &[400.0])];
        let comparison = compare(Row::Memory, &series("convoy", &[23.0]), &peers);
        assert_eq!(comparison.verdict, Verdict::HoldsAtTheMedian);
        assert_eq!(comparison.must, "≤ 24");
        let comparison = compare(Row::Memory, &series("convoy", &[25.0]), &[]);
        assert_eq!(comparison.verdict, Verdict::Fails);
        let comparison = compare(Row::TcpUp, &series("convoy", &[25.0]), &[]);
        assert_eq!(comparison.verdict, Verdict::Unknown);
    }
}
