//! Contenders side by side: the record of a run, and its conclusions row by row.

use std::collections::BTreeMap;

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::origin::Origin;
use crate::tunnel::rows::Aim;
use crate::tunnel::{Contender, Outcome, Row};

/// A whole run, as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) origin: Origin,
    pub(crate) rounds: u32,
    /// Seconds of a TCP run.
    pub(crate) secs: u64,
    /// The first is compared with the others.
    pub(crate) contenders: Vec<Contender>,
    /// Contenders that could not be measured, with the reason.
    pub(crate) absent: BTreeMap<String, String>,
    /// The rows, by name.
    pub(crate) rows: Vec<String>,
    /// In the order in which they were measured.
    pub(crate) turns: Vec<Turn>,
}

/// One contender in one round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// From 0.
    pub(crate) round: u32,
    pub(crate) contender: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// The ratio of two contenders' figures, within each round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) sample: Sample,
    /// None of fewer than six rounds.
    pub(crate) interval: Option<Interval>,
}

/// Whether an aim is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// In the whole interval.
    Holds,
    /// At the median; the interval reaches beyond the limit, or there is none.
    HoldsAtTheMedian,
    /// Not at the median.
    Fails,
    /// Nothing to compare, or nothing asked.
    Unknown,
}

impl Record {
    /// The rows that the program still knows.
    pub(crate) fn rows(&self) -> Vec<&'static Row> {
        self.rows
            .iter()
            .filter_map(|name| Row::named(name))
            .collect()
    }

    /// A contender's figures in a row, by round; none where a test failed.
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

    /// The one of `among` with the best median.
    pub(crate) fn best<'a>(&self, among: &[&'a str], row: &Row) -> Option<&'a str> {
        let sign = if row.aim.more_is_better() { 1.0 } else { -1.0 };
        let medians = among
            .iter()
            .filter_map(|name| Some((self.median(name, row)? * sign, *name)));
        let best = medians.max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, name)| name)
    }

    /// `one`'s figure divided by `other`'s in the same round.
    pub(crate) fn ratio(&self, one: &str, other: &str, row: &Row) -> Option<Ratio> {
        let pairs = self
            .values(one, row)
            .into_iter()
            .zip(self.values(other, row));
        let ratios = pairs.filter_map(|(one, other)| Some(one? / other?));
        Ratio::of(ratios.filter(|ratio| ratio.is_finite()).collect())
    }

    /// Whether `one` reaches the row's aim against `best`.
    pub(crate) fn verdict(&self, one: &str, best: Option<&str>, row: &Row) -> Verdict {
        let ratio = || self.ratio(one, best?, row);
        match row.aim {
            Aim::More | Aim::Less => Verdict::Unknown,
            Aim::RatioAtLeast(limit) => judge(ratio(), |value| value >= limit),
            Aim::RatioAtMost(limit) => judge(ratio(), |value| value <= limit),
            Aim::AtMost(limit) => {
                let own = self.values(one, row).into_iter().flatten().collect();
                judge(Ratio::of(own), |value| value <= limit)
            }
        }
    }

    /// A line for each test that failed.
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
    fn of(values: Vec<f64>) -> Option<Self> {
        let interval = Interval::of_median(&values);
        let sample = Sample::of(values)?;
        Some(Self { sample, interval })
    }

    /// `0.97 (0.95–1.01)`: the median, and the interval or else the lowest and the highest.
    pub(crate) fn text(&self) -> String {
        let Self { sample, interval } = self;
        let (low, high) = match interval {
            Some(Interval { low, high }) => (*low, *high),
            None => (sample.min, sample.max),
        };
        format!("{:.2} ({low:.2}–{high:.2})", sample.median)
    }
}

fn judge(ratio: Option<Ratio>, holds: impl Fn(f64) -> bool) -> Verdict {
    let Some(Ratio { sample, interval }) = ratio else {
        return Verdict::Unknown;
    };
    let surely = interval.is_some_and(|Interval { low, high }| holds(low) && holds(high));
    match (surely, holds(sample.median)) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::HoldsAtTheMedian,
        (false, false) => Verdict::Fails,
    }
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
        Record {
            origin: Origin::of_this_run(Vec::new()),
            rounds: figures[0].1.len() as u32,
            secs: 1,
            contenders: figures
                .iter()
                .map(|(name, _)| Contender::wireguard(name, Path::new("")))
                .collect(),
            absent: BTreeMap::new(),
            rows: vec![row.to_owned()],
            turns: turns.collect(),
        }
    }

    fn verdict(row: &str, convoy: &[f64], peer: &[f64]) -> Verdict {
        let record = record(row, &[("convoy", convoy), ("peer", peer)]);
        record.verdict("convoy", Some("peer"), record.rows()[0])
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
            let among = ["absent", "lucky", "steady"];
            assert_eq!(
                record.best(&among, record.rows()[0]),
                Some(expected),
                "{row}"
            );
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_one_without_a_figure_is_left_out() {
        let mut record = record(
            "tcp-up",
            &[("a", &[2.0, 9.0, 8.0]), ("b", &[1.0, 3.0, 0.0])],
        );
        let row = record.rows()[0];
        assert_eq!(
            record.ratio("a", "b", row).unwrap().sample.values,
            [2.0, 3.0]
        );
        record.turns[0].outcome.figures.clear();
        assert_eq!(
            record.ratio("a", "b", row).unwrap().text(),
            "3.00 (3.00–3.00)"
        );
    }

    #[test]
    fn a_must_holds_surely_only_in_the_whole_interval() {
        let mut values = [1.5; 9];
        assert_eq!(verdict("tcp-up", &values, &[1.0; 9]), Verdict::Holds);
        values[..2].fill(1.2);
        assert_eq!(
            verdict("tcp-up", &values, &[1.0; 9]),
            Verdict::HoldsAtTheMedian
        );
        assert_eq!(verdict("tcp-up", &[1.2; 9], &[1.0; 9]), Verdict::Fails);
        assert_eq!(verdict("tcp-up-cpu", &[0.7; 9], &[1.0; 9]), Verdict::Holds);
        assert_eq!(verdict("tcp-8-up", &[9.0; 9], &[1.0; 9]), Verdict::Unknown);
    }

    #[test]
    fn memory_is_judged_by_itself_and_few_rounds_are_never_sure() {
        assert_eq!(
            verdict("memory", &[23.0], &[1.0]),
            Verdict::HoldsAtTheMedian
        );
        assert_eq!(verdict("memory", &[25.0], &[900.0]), Verdict::Fails);
    }
}
