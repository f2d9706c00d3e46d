//! Changes, noise and the tables that show them.

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use super::{Record, tunnel};
use crate::results::Report;
use crate::table::{self, cell, number, percent, spread};

/// The lowest noise that a result claims, however steady its run was.
const LEAST_NOISE: f64 = 0.01;
/// Times with more noise are not shown: they could not show a change either.
const MOST_NOISE: f64 = 0.1;
const LEGEND: &str = "
Medians over the rounds. Noise is the largest deviation from 1, in any round, of the base's ratio to itself.
Times with more than 10 % noise are not shown. A change exceeds the noise and has the same sign in every round.
Instructions are per repetition: they change only if the code does.
";

/// One stage.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// Nanoseconds of the base, or of this tree if there is no base.
    base: Option<Sample>,
    head: Option<Sample>,
    /// The largest deviation from 1, over all rounds, of the base's ratio to itself.
    noise: Option<f64>,
    /// Ratio of the head to the base within each round.
    pub(super) compared: Option<Sample>,
    pub(super) instructions: Instructions,
}

/// Instructions per repetition, if they were counted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Instructions {
    pub(super) base: Option<f64>,
    pub(super) head: Option<f64>,
}

impl Row {
    /// `itself` holds two series of the base, `head` one of the head, if there is one; each has one value per round.
    pub(super) fn new(name: String, itself: [Vec<f64>; 2], head: Vec<f64>) -> Self {
        let noise = Sample::of_ratios(&itself[0], &itself[1]).map(|ratios| {
            let distances = ratios.values.iter().map(|ratio| distance(*ratio));
            distances.fold(LEAST_NOISE, f64::max)
        });
        Self {
            name,
            compared: Sample::of_ratios(&head, &itself[0]),
            base: Sample::of(itself.concat()),
            head: Sample::of(head),
            noise,
            instructions: Instructions::default(),
        }
    }

    fn is_clear(&self) -> bool {
        self.noise.is_some_and(|noise| noise <= MOST_NOISE)
    }

    /// `faster` or `slower` if there is a clear change, else empty.
    fn change(&self) -> &'static str {
        let Some((ratio, noise)) = self.compared.as_ref().zip(self.noise) else {
            return "";
        };
        let is_unanimous = ratio.min > 1.0 || ratio.max < 1.0;
        match is_unanimous && distance(ratio.median) > noise {
            false => "",
            true if ratio.median > 1.0 => "**slower**",
            true => "faster",
        }
    }

    fn name(&self) -> String {
        self.name.trim_start_matches("stages::").to_owned()
    }

    fn time(&self, of: Option<&Sample>) -> String {
        cell(
            of.filter(|_| self.is_clear())
                .map(|sample| time(sample.median)),
        )
    }

    fn noise(&self) -> String {
        match self.noise {
            Some(_) => percent(self.noise) + " %",
            None => percent(None),
        }
    }
}

/// How far a ratio is from 1, in either direction: 2 and ½ give the same.
fn distance(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio) - 1.0
}

fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// The stages of one tree or of both, and their tunnels.
impl Report for Record {
    fn text(&self) -> String {
        let (origin, rounds) = (self.origin.paragraph(), self.rounds);
        match &self.base {
            Some(base) => {
                let tunnel = self.tunnel.as_ref().map(tunnel::markdown);
                let (stages, tunnel) = (self.compared(), tunnel.unwrap_or_default());
                format!("{origin}\nAgainst {base}, {rounds} rounds.\n\n{stages}{LEGEND}\n{tunnel}")
            }
            None => format!("{origin}\n{rounds} rounds.\n\n{}{LEGEND}", self.stages()),
        }
    }
}

impl Record {
    fn stages(&self) -> String {
        let row = |row: &Row| {
            let counted = number(row.instructions.head, 0);
            vec![
                row.name(),
                row.time(row.base.as_ref()),
                row.noise(),
                counted,
            ]
        };
        let head = "stage | median | noise | instructions";
        table::markdown(head, self.rows.iter().map(row))
    }

    fn compared(&self) -> String {
        let head = "stage | base | head | head ÷ base | noise |  | instructions | head ÷ base";
        let row = |row: &Row| {
            let ratio = row.compared.as_ref().filter(|_| row.is_clear());
            let Instructions { base, head } = row.instructions;
            vec![
                row.name(),
                row.time(row.base.as_ref()),
                row.time(row.head.as_ref()),
                cell(ratio.map(|ratio| spread(ratio, 3))),
                row.noise(),
                row.change().to_owned(),
                number(head.or(base), 0),
                number(head.zip(base).map(|(head, base)| head / base), 4),
            ]
        };
        table::markdown(head, self.rows.iter().map(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(itself: [[f64; 3]; 2], head: [f64; 3]) -> Row {
        let itself = itself.map(Vec::from);
        Row::new("stages::a".to_owned(), itself, head.into())
    }

    const STEADY: [[f64; 3]; 2] = [[10.0; 3]; 2];

    #[test]
    fn a_change_lies_beyond_the_noise_and_is_in_every_round() {
        let noisy = [[10.0, 10.0, 11.0], [10.0; 3]];
        assert_eq!(row(noisy, [9.2; 3]).change(), "");
        assert_eq!(row(STEADY, [9.2; 3]).change(), "faster");
        assert_eq!(row(STEADY, [10.8; 3]).change(), "**slower**");
        assert_eq!(row(STEADY, [9.95; 3]).change(), "", "below the least noise");
        assert_eq!(
            row(STEADY, [8.0, 8.0, 10.1]).change(),
            "",
            "not in every round"
        );
        let only_base = Row::new("a".to_owned(), [vec![10.0], vec![10.0]], Vec::new());
        assert_eq!((only_base.change(), only_base.compared), ("", None));
    }

    #[test]
    fn noise_is_the_same_either_way_and_hides_times() {
        let noisy = row([[5.0; 3], [10.0; 3]], [5.0; 3]);
        assert_eq!(noisy.noise, Some(1.0));
        assert_eq!(noisy.time(noisy.head.as_ref()), "–");
        assert_eq!(row([[10.0; 3], [5.0; 3]], [5.0; 3]).noise, Some(1.0));
        let steady = row(STEADY, [10.0; 3]);
        assert_eq!(steady.time(steady.head.as_ref()), "10.0 ns");
    }
}
