//! Changes of stages, their noise, and the table that shows them.

use convoy_lab::measure::Sample;
use convoy_rows::row::{Row, Run};
use convoy_rows::table::{self, cell, number, spread};
use itertools::Itertools as _;

/// The lowest noise that a result claims, however steady its run was.
const LEAST_NOISE: f64 = 0.01;
/// Times with more noise are not shown: they could not show a change either.
const MOST_NOISE: f64 = 0.1;
pub(super) const LEGEND: &str = "\
Medians over the rounds. Noise is the largest deviation from 1, in any round, of the base's ratio to itself.
Times with more than 10 % noise are not shown. A change exceeds the noise and has the same sign in every round.
Instructions are per repetition: they change only if the code does.";
/// The base, the same a second time to show the noise, and this tree. Without a base, the first two are this tree.
pub(super) const BASE: &str = "base";
pub(super) const AGAIN: &str = "base again";
pub(super) const HEAD: &str = "head";
/// All sides, in the order of their columns.
pub(super) const SIDES: [&str; 3] = [BASE, HEAD, AGAIN];
/// Figures of a stage.
pub(super) const TIME: (&str, &str) = ("time", "ns");
pub(super) const INSTRUCTIONS: (&str, &str) = ("instructions", "");

/// One stage.
struct Stage {
    base: Option<Sample>,
    head: Option<Sample>,
    /// The largest deviation from 1, over all rounds, of the base's ratio to itself.
    noise: Option<f64>,
    /// Ratio of the head to the base within each round.
    compared: Option<Sample>,
}

/// Lists all stages, of one tree or of both.
pub(super) fn table(run: &Run, is_compared: bool) -> String {
    let head = match is_compared {
        true => "stage | base | head | head ÷ base | noise |  | instructions | head ÷ base",
        false => "stage | median | noise | instructions",
    };
    let row = |scene: String| {
        let stage = Stage::of(run, &scene);
        let counted = |side| Some(run.sample(&scene, side, INSTRUCTIONS)?.median);
        let (base, head) = (counted(BASE), counted(HEAD));
        let name = scene.trim_start_matches("stages::").to_owned();
        let noise = stage.noise.map(|noise| format!("{:.1} %", noise * 100.0));
        let counted = number(head.or(base), 0);
        if !is_compared {
            return vec![name, stage.time(&stage.base), cell(noise), counted];
        }
        let ratio = stage.compared.as_ref().filter(|_| stage.is_clear());
        vec![
            name,
            stage.time(&stage.base),
            stage.time(&stage.head),
            cell(ratio.map(|ratio| spread(ratio, 3))),
            cell(noise),
            stage.change().to_owned(),
            counted,
            number(head.zip(base).map(|(head, base)| head / base), 4),
        ]
    };
    table::markdown(head, scenes(run).into_iter().map(row))
}

/// Lists the stages in the order in which they were measured.
pub(super) fn scenes(run: &Run) -> Vec<String> {
    let timed = run.rows.iter().filter(|row| row.figure == TIME.0);
    timed.map(|row| row.scene.clone()).unique().collect()
}

impl Stage {
    fn of(run: &Run, scene: &str) -> Self {
        let noise = run.ratio(scene, BASE, AGAIN, TIME).map(|ratios| {
            let distances = ratios.values.iter().map(|ratio| distance(*ratio));
            distances.fold(LEAST_NOISE, f64::max)
        });
        let is_base = |row: &Row| row.is_of(scene, TIME) && row.contender != HEAD;
        Self {
            base: Sample::of(run.select(is_base)),
            head: run.sample(scene, HEAD, TIME),
            noise,
            compared: run.ratio(scene, HEAD, BASE, TIME),
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

    fn time(&self, of: &Option<Sample>) -> String {
        let shown = of.as_ref().filter(|_| self.is_clear());
        cell(shown.map(|sample| match sample.median {
            ns if ns < 1e3 => format!("{ns:.1} ns"),
            ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
            ns => format!("{:.2} ms", ns / 1e6),
        }))
    }
}

/// Returns the distance of a ratio from 1, in either direction: 2 and ½ give the same.
fn distance(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage([base, again]: [[f64; 3]; 2], head: [f64; 3]) -> Stage {
        let mut run = Run::new(Vec::new());
        for (contender, times) in [(BASE, base), (AGAIN, again), (HEAD, head)] {
            for (round, time) in (0..).zip(times) {
                run.push(Row::new("stages::a", contender, TIME, round, time));
            }
        }
        assert_eq!(scenes(&run), ["stages::a"]);
        Stage::of(&run, "stages::a")
    }

    const STEADY: [[f64; 3]; 2] = [[10.0; 3]; 2];

    #[test]
    fn a_change_lies_beyond_the_noise_and_is_in_every_round() {
        let noisy = [[10.0, 10.0, 11.0], [10.0; 3]];
        for (itself, head, change) in [
            (noisy, [9.2; 3], ""),
            (STEADY, [9.2; 3], "faster"),
            (STEADY, [10.8; 3], "**slower**"),
            // Below the least noise, and not in every round.
            (STEADY, [9.95; 3], ""),
            (STEADY, [8.0, 8.0, 10.1], ""),
        ] {
            assert_eq!(stage(itself, head).change(), change, "{itself:?} {head:?}");
        }
    }

    #[test]
    fn noise_is_the_same_either_way_and_hides_times() {
        for (base, noise, time) in [
            ([[5.0; 3], [10.0; 3]], 1.0, "–"),
            ([[10.0; 3], [5.0; 3]], 1.0, "–"),
            (STEADY, LEAST_NOISE, "10.0 ns"),
        ] {
            let stage = stage(base, [10.0; 3]);
            assert_eq!(stage.noise, Some(noise));
            assert_eq!(stage.time(&stage.head), time);
        }
    }

    #[test]
    fn every_committed_stage_is_listed() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results/stages.jsonl");
        let run = Run::load(&file).unwrap().unwrap();
        let table = table(&run, false);
        assert_eq!(table.lines().count(), 2 + scenes(&run).len(), "{table}");
        assert!(table.contains("| path::outbound "), "{table}");
    }
}
