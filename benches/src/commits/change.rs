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
pub(super) const TIME: (&str, &str) = ("time", "ns");
pub(super) const INSTRUCTIONS: (&str, &str) = ("instructions", "");

/// Lists all stages, of one tree or of both.
pub(super) fn table(run: &Run, is_compared: bool) -> String {
    let head = match is_compared {
        true => "stage | base | head | head ÷ base | noise |  | instructions | head ÷ base",
        false => "stage | median | noise | instructions",
    };
    let scenes = scenes(run);
    let lines = scenes.iter().map(|scene| cells(run, scene));
    table::markdown(
        head,
        lines.map(|cells| match is_compared {
            true => cells.into(),
            false => [0, 1, 4, 6].map(|column| cells[column].clone()).into(),
        }),
    )
}

/// Lists the stages in the order in which they were measured.
pub(super) fn scenes(run: &Run) -> Vec<String> {
    let timed = run.rows.iter().filter(|row| row.figure == TIME.0);
    timed.map(|row| row.scene.clone()).unique().collect()
}

/// A stage's line in a table of both trees.
fn cells(run: &Run, scene: &str) -> [String; 8] {
    let noise = run.ratio(scene, [BASE, AGAIN], TIME).map(|ratios| {
        let distances = ratios.values.iter().map(|ratio| distance(*ratio));
        distances.fold(LEAST_NOISE, f64::max)
    });
    let is_clear = noise.is_some_and(|noise| noise <= MOST_NOISE);
    let time = |sample: Option<Sample>| {
        cell(sample.filter(|_| is_clear).map(|it| match it.median {
            ns if ns < 1e3 => format!("{ns:.1} ns"),
            ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
            ns => format!("{:.2} ms", ns / 1e6),
        }))
    };
    let is_base = |row: &Row| row.is_of(scene, TIME) && row.contender != HEAD;
    let ratio = run.ratio(scene, [HEAD, BASE], TIME);
    let change = ratio.as_ref().zip(noise).map_or("", change);
    let counted = |side| Some(run.sample(scene, side, INSTRUCTIONS)?.median);
    let (base, head) = (counted(BASE), counted(HEAD));
    [
        scene.trim_start_matches("stages::").to_owned(),
        time(Sample::of(run.select(is_base))),
        time(run.sample(scene, HEAD, TIME)),
        cell(ratio.filter(|_| is_clear).map(|ratio| spread(&ratio, 3))),
        cell(noise.map(|noise| format!("{:.1} %", noise * 100.0))),
        change.to_owned(),
        number(head.or(base), 0),
        number(head.zip(base).map(|(head, base)| head / base), 4),
    ]
}

/// `faster` or `slower` if a ratio to the base is a clear change, else empty.
fn change((ratio, noise): (&Sample, f64)) -> &'static str {
    let is_unanimous = ratio.min > 1.0 || ratio.max < 1.0;
    match is_unanimous && distance(ratio.median) > noise {
        false => "",
        true if ratio.median > 1.0 => "**slower**",
        true => "faster",
    }
}

/// Returns the distance of a ratio from 1, in either direction: 2 and ½ give the same.
fn distance(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage([base, again]: [[f64; 3]; 2], head: [f64; 3]) -> [String; 8] {
        let mut run = Run::new(Vec::new());
        for (contender, times) in [(BASE, base), (AGAIN, again), (HEAD, head)] {
            for (round, time) in (0..).zip(times) {
                run.push(Row::new("stages::a", contender, TIME, round, time));
            }
        }
        assert_eq!(scenes(&run), ["stages::a"]);
        cells(&run, "stages::a")
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
            assert_eq!(stage(itself, head)[5], change, "{itself:?} {head:?}");
        }
    }

    #[test]
    fn noise_is_the_same_either_way_and_hides_times() {
        for (base, noise, time) in [
            ([[5.0; 3], [10.0; 3]], "100.0 %", "–"),
            ([[10.0; 3], [5.0; 3]], "100.0 %", "–"),
            (STEADY, "1.0 %", "10.0 ns"),
        ] {
            let stage = stage(base, [10.0; 3]);
            assert_eq!([&stage[4], &stage[2]], [noise, time]);
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
