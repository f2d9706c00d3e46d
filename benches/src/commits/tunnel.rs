//! Whole tunnels of two or more programs. The daemons of all programs run at the same time; each test runs on
//! one program after another before the next test begins.

use std::time::Duration;

use anyhow::ensure;
use convoy_lab::measure::Sample;
use convoy_lab::wireguard::TunnelOptions;
use convoy_rows::row::{Run, decimals};
use convoy_rows::table::{self, cell, spread};

use crate::rounds::{Progress, rotated};
use crate::tunnel::scenes::{SCENES, tests_of};
use crate::tunnel::{Contender, Scene, Stand};

const LEGEND: &str = "
Medians over the rounds, with the lowest and highest value in brackets. Ratios are taken within each round; the
brackets hold the 95 % interval (from six rounds on), or else the lowest and highest ratio.
";

/// Measures `scenes` on each of `contenders` in `rounds` interleaved rounds.
pub(super) fn measure(
    contenders: &[Contender],
    scenes: &[&Scene],
    rounds: u32,
    window: Duration,
    run: &mut Run,
) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "tunnels need root");
    let tests = tests_of(scenes);
    let mut progress = Progress::of(tests.len() * rounds as usize);
    let stand = |one: &Contender| Stand::new(one, window, &TunnelOptions::default());
    let mut stands: Vec<Stand> = contenders.iter().map(stand).collect::<Result<_, _>>()?;
    for round in 0..rounds {
        for stand in &mut stands {
            stand.restart()?;
        }
        for &test in &tests {
            let before = run.rows.len();
            for number in rotated(0..stands.len(), round) {
                stands[number].measure(test, scenes, round, run)?;
            }
            let rows = run.rows[before..].iter();
            let figures = rows.map(|it| format!("{} {} {:.2}", it.contender, it.scene, it.value));
            let figures = figures.collect::<Vec<_>>().join(", ");
            progress.step(&format!("round {}: {figures}", round + 1));
        }
    }
    Ok(())
}

/// One line per scene, with the ratio of each other contender to the first.
pub(super) fn table(run: &Run, names: &[&str]) -> String {
    let is_there = |name: &&&str| run.rows.iter().any(|row| row.contender == **name);
    let names: Vec<_> = names.iter().filter(is_there).copied().collect();
    let Some((first, others)) = names.split_first() else {
        return String::new();
    };
    let ratios = others.iter().map(|other| format!(" | {other} ÷ {first}"));
    let head: String = format!(" | {}", names.join(" | ")) + &ratios.collect::<String>();
    let line = |scene: &Scene| {
        let (name, (figure, unit)) = (scene.name, scene.figure);
        let sample = |one: &&str| Sample::of(run.values(name, one).into_values().collect());
        sample(first)?;
        let figures = names
            .iter()
            .map(|one| cell(sample(one).map(|it| spread(&it, decimals(unit)))));
        let ratios = others
            .iter()
            .map(|other| cell(run.ratio(name, other, first).map(|it| it.text())));
        let title = [format!("{figure}, {unit}")].into_iter();
        Some(title.chain(figures).chain(ratios).collect::<Vec<_>>())
    };
    let table = table::markdown(&head, SCENES.iter().filter_map(line));
    format!("{table}{LEGEND}{}", run.origin.notes.join("\n"))
}
