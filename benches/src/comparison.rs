//! Contenders side by side: the record of a run and its conclusions for each row.

use std::collections::BTreeMap;
use std::time::Duration;

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::tunnel::rows::{Aim, Set};
use crate::tunnel::{Contender, Outcome, Row};

/// The confidence level: the share of intervals that hold the true median.
const CONFIDENCE: f64 = 0.95;

/// A whole run, as written to the result file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) origin: Origin,
    /// Absent in files from before there were two.
    #[serde(default)]
    pub(crate) set: Set,
    pub(crate) rounds: u32,
    /// Seconds of a TCP run.
    pub(crate) secs: u64,
    /// The first contender is compared with the others.
    pub(crate) contenders: Vec<Contender>,
    /// Contenders that could not be measured, and the reasons.
    pub(crate) absent: BTreeMap<String, String>,
    /// The rows, by name.
    pub(crate) rows: Vec<String>,
    /// In the order in which they were measured.
    pub(crate) turns: Vec<Turn>,
}

/// One contender in one round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Starts at 0.
    pub(crate) round: u32,
    pub(crate) contender: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// A figure in each round, or the ratio of two contenders' figures within each round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) sample: Sample,
    /// The 95 % confidence interval of the median; `None` for fewer than six rounds.
    pub(crate) interval: Option<[f64; 2]>,
}

/// Whether Convoy meets a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The whole interval meets the target.
    Holds,
    /// The median meets the target, but the interval does not, or there is none.
    HoldsAtTheMedian,
    /// The median misses the target.
    Fails,
    /// There is nothing to compare, or no target.
    Unknown,
}

impl Verdict {
    /// For a table.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::HoldsAtTheMedian => "median",
            Self::Fails => "**no**",
            Self::Unknown => "",
        }
    }
}

impl Record {
    /// A run that begins now.
    pub(crate) fn new(
        contenders: Vec<Contender>,
        rows: &[&Row],
        rounds: u32,
        window: Duration,
    ) -> Self {
        Self {
            origin: Origin::of_this_run(Vec::new()),
            set: Set::default(),
            rounds,
            secs: window.as_secs(),
            contenders,
            absent: BTreeMap::new(),
            rows: rows.iter().map(|row| row.name.to_owned()).collect(),
            turns: Vec::new(),
        }
    }

    /// The rows of the record that this version still defines.
    pub(crate) fn rows(&self) -> Vec<&'static Row> {
        self.rows
            .iter()
            .filter_map(|name| Row::named(name))
            .collect()
    }

    /// A contender's figures in a row, by round; `None` where a test failed.
    pub(crate) fn values(&self, contender: &str, row: &Row) -> Vec<Option<f64>> {
        let value = |round| {
            let mut turns = self.turns.iter();
            let turn = turns.find(|turn| turn.contender == contender && turn.round == round)?;
            turn.outcome.figures.get(row.name).copied()
        };
        (0..self.rounds).map(value).collect()
    }

    pub(crate) fn sample(&self, contender: &str, row: &Row) -> Option<Sample> {
        Sample::of(self.values(contender, row).into_iter().flatten().collect())
    }

    pub(crate) fn median(&self, contender: &str, row: &Row) -> Option<f64> {
        Some(self.sample(contender, row)?.median)
    }

    /// Whether the generator set a contender's limit in at least one round.
    pub(crate) fn is_limited(&self, contender: &str, row: &Row) -> bool {
        self.turns.iter().any(|turn| {
            let limited = &turn.outcome.generator_limited;
            turn.contender == contender && limited.iter().any(|name| name == row.name)
        })
    }

    /// The contender in `among` with the best median.
    pub(crate) fn best<'a>(&self, among: &[&'a str], row: &Row) -> Option<&'a str> {
        let sign = if row.aim.more_is_better() { 1.0 } else { -1.0 };
        let medians = among
            .iter()
            .filter_map(|name| Some((self.median(name, row)? * sign, *name)));
        let best = medians.max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, name)| name)
    }

    /// Ratio of `one`'s figure to `other`'s within each round.
    pub(crate) fn ratio(&self, one: &str, other: &str, row: &Row) -> Option<Ratio> {
        let pairs = self
            .values(one, row)
            .into_iter()
            .zip(self.values(other, row));
        let ratios = pairs.filter_map(|(one, other)| Some(one? / other?));
        Ratio::of(ratios.filter(|ratio| ratio.is_finite()).collect())
    }

    /// Whether `one` meets the row's target against `best`.
    pub(crate) fn verdict(&self, one: &str, best: Option<&str>, row: &Row) -> Verdict {
        let judged = |ratio: Option<Ratio>, holds: &dyn Fn(f64) -> bool| match ratio {
            Some(ratio) => ratio.judge(holds),
            None => Verdict::Unknown,
        };
        let to_best = best.and_then(|best| self.ratio(one, best, row));
        match row.aim {
            Aim::More | Aim::Less => Verdict::Unknown,
            Aim::RatioAtLeast(limit) => judged(to_best, &|value| value >= limit),
            Aim::RatioAtMost(limit) => judged(to_best, &|value| value <= limit),
            Aim::AtMost(limit) => {
                let own = self.values(one, row).into_iter().flatten();
                judged(Ratio::of(own.collect()), &|value| value <= limit)
            }
        }
    }

    /// One line for each failed test.
    pub(crate) fn failures(&self) -> Vec<String> {
        let of_turn = |turn: &'_ Turn| {
            let (who, round) = (turn.contender.clone(), turn.round + 1);
            let failures = turn.outcome.failures.clone().into_iter();
            failures.map(move |failure| format!("Failed: {who} in round {round}: {failure}"))
        };
        self.turns.iter().flat_map(of_turn).collect()
    }
}

impl Ratio {
    /// The interval lies between two order statistics (an inverted sign test). It assumes nothing about the
    /// distribution and needs no random numbers. Of 9 values they are the second and the eighth (96.1 %).
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let ends = |left_out| [sorted[left_out], sorted[sorted.len() - 1 - left_out]];
        Some(Self {
            interval: left_out(sorted.len()).map(ends),
            sample: Sample::of(values)?,
        })
    }

    /// `0.97 (0.95–1.01)`: the median and the interval, or if there is none, the lowest and highest value.
    pub(crate) fn text(&self) -> String {
        let Self { sample, interval } = self;
        let [low, high] = interval.unwrap_or([sample.min, sample.max]);
        format!("{:.2} ({low:.2}–{high:.2})", sample.median)
    }

    /// Whether the values meet a target.
    pub(crate) fn judge(&self, holds: impl Fn(f64) -> bool) -> Verdict {
        let is_sure = self
            .interval
            .is_some_and(|[low, high]| holds(low) && holds(high));
        match holds(self.sample.median) {
            _ if is_sure => Verdict::Holds,
            true => Verdict::HoldsAtTheMedian,
            false => Verdict::Fails,
        }
    }
}

/// How many of `count` values to leave out at each end of an interval.
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
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// Figures of `tcp-up`, by contender and round.
    pub(crate) fn record(row: &str, figures: &[(&str, &[f64])]) -> Record {
        let turns = figures.iter().flat_map(|(name, values)| {
            values.iter().zip(0..).map(|(value, round)| Turn {
                round,
                contender: (*name).to_owned(),
                outcome: Outcome {
                    figures: BTreeMap::from([(row.to_owned(), *value)]),
                    ..Outcome::default()
                },
            })
        });
        let contenders = figures.iter();
        let contenders = contenders.map(|(name, _)| Contender::wireguard(name, Path::new("")));
        let rounds = figures[0].1.len() as u32;
        let row = Row::named(row).unwrap();
        Record {
            turns: turns.collect(),
            ..Record::new(contenders.collect(), &[row], rounds, Duration::ZERO)
        }
    }

    #[test]
    fn the_best_peer_has_the_best_median_and_not_the_best_single_value() {
        let figures: [(&str, &[f64]); 3] = [
            ("lucky", &[1.0, 2.0, 9.0]),
            ("steady", &[3.0; 3]),
            ("convoy", &[1.0; 3]),
        ];
        for (row, expected) in [("tcp-up", "steady"), ("ping-idle", "lucky")] {
            let record = record(row, &figures);
            let best = record.best(&["absent", "lucky", "steady"], record.rows()[0]);
            assert_eq!(best, Some(expected), "{row}");
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_one_without_a_figure_is_left_out() {
        let figures: [(&str, &[f64]); 2] = [("a", &[2.0, 9.0, 8.0]), ("b", &[1.0, 3.0, 0.0])];
        let mut record = record("tcp-up", &figures);
        let row = record.rows()[0];
        let ratio = record.ratio("a", "b", row).unwrap();
        assert_eq!(ratio.sample.values, [2.0, 3.0]);
        record.turns[0].outcome.figures.clear();
        let ratio = record.ratio("a", "b", row).unwrap();
        assert_eq!(ratio.text(), "3.00 (3.00–3.00)");
    }

    #[test]
    fn a_must_holds_surely_only_in_the_whole_interval() {
        use Verdict::{Fails, Holds, HoldsAtTheMedian, Unknown};
        let mut values = [1.5; 9];
        values[..2].fill(1.2);
        let cases: [(&str, &[f64], Verdict); 7] = [
            ("tcp-up", &[1.5; 9], Holds),
            ("tcp-up", &values, HoldsAtTheMedian),
            ("tcp-up", &[1.2; 9], Fails),
            ("tcp-up-cpu", &[0.7; 9], Holds),
            ("tcp-8-up", &[9.0; 9], Unknown),
            // Memory has an absolute target; few rounds never make it certain.
            ("memory", &[23.0], HoldsAtTheMedian),
            ("memory", &[25.0], Fails),
        ];
        for (row, convoy, expected) in cases {
            let peer = vec![1.0; convoy.len()];
            let record = record(row, &[("convoy", convoy), ("peer", &peer)]);
            let verdict = record.verdict("convoy", Some("peer"), record.rows()[0]);
            assert_eq!(verdict, expected, "{row} {convoy:?}");
        }
    }

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        // As in any table of the sign test for a two-sided 5 %.
        let expected = [
            (0, None),
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
        ];
        for (count, rank) in expected.into_iter().chain([(12, Some(2)), (20, Some(5))]) {
            assert_eq!(left_out(count), rank, "{count}");
        }
        let ratio = Ratio::of([5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0].into());
        assert_eq!(ratio.unwrap().interval, Some([2.0, 8.0]));
    }
}
