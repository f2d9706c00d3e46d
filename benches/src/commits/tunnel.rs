//! Whole tunnels of two or more programs. The daemons of all programs run at the same time; each test runs on
//! one program after another before the next test begins.

use std::time::Duration;

use anyhow::ensure;
use convoy_lab::wireguard::TunnelOptions;

use crate::comparison::{Record, Turn};
use crate::rounds::{Progress, rotated};
use crate::table::{self, cell, number, spread};
use crate::tunnel::rows::{self, OF_COMMITS};
use crate::tunnel::{Contender, Outcome, Row, Stand};

const LEGEND: &str = "
Medians over the rounds, with the lowest and highest value in brackets. Ratios are taken within each round; the
brackets hold the 95 % interval (from six rounds on), or else the lowest and highest ratio.
";

/// The rows called `names`, or if there are none, those that tell two builds apart.
pub(super) fn rows_named(names: &[String]) -> anyhow::Result<Vec<&'static Row>> {
    match names {
        [] => rows::named(&OF_COMMITS),
        names => rows::named(names),
    }
}

/// Measures `rows` on each of `contenders` in `rounds` interleaved rounds.
pub(super) fn measure(
    contenders: Vec<Contender>,
    rows: &[&Row],
    rounds: u32,
    window: Duration,
) -> anyhow::Result<Record> {
    ensure!(nix::unistd::geteuid().is_root(), "tunnels need root");
    let tests = rows::tests_of(rows);
    let mut progress = Progress::of(tests.len() * rounds as usize);
    let stand = |one: &Contender| Stand::new(one, window, &TunnelOptions::default());
    let mut stands: Vec<Stand> = contenders.iter().map(stand).collect::<Result<_, _>>()?;
    let mut turns = Vec::new();
    for round in 0..rounds {
        for stand in &mut stands {
            stand.restart()?;
        }
        let mut outcomes = vec![Outcome::default(); stands.len()];
        for &test in &tests {
            for number in rotated(0..stands.len(), round) {
                outcomes[number].measure(&mut stands[number], test, rows)?;
            }
            progress.step(&format!(
                "round {}: {}",
                round + 1,
                figures_of(test, rows, &outcomes)
            ));
        }
        let named = contenders.iter().zip(outcomes);
        turns.extend(named.map(|(contender, outcome)| Turn {
            round,
            contender: contender.name.clone(),
            outcome,
        }));
    }
    Ok(Record {
        turns,
        ..Record::new(contenders, rows, rounds, window)
    })
}

/// The figures of a test, for each contender.
fn figures_of(test: rows::Test, rows: &[&Row], outcomes: &[Outcome]) -> String {
    let own = rows.iter().filter(|row| row.test == test);
    let of_row = |row: &&Row| {
        let figures = outcomes
            .iter()
            .map(|outcome| number(outcome.figures.get(row.name).copied(), row.decimals));
        format!("{} {}", row.name, figures.collect::<Vec<_>>().join(" : "))
    };
    own.map(of_row).collect::<Vec<_>>().join(", ")
}

/// One table row per measured row, with the ratio of each other contender to the first.
pub(super) fn markdown(record: &Record) -> String {
    let names: Vec<_> = record.contenders.iter().map(|one| &one.name[..]).collect();
    let Some((first, others)) = names.split_first() else {
        return String::new();
    };
    let ratios = others.iter().map(|other| format!(" | {other} ÷ {first}"));
    let head: String = format!(" | {}", names.join(" | ")) + &ratios.collect::<String>();
    let row = |row: &'static Row| {
        let figure = |name: &&str| {
            let is_limited = record.is_limited(name, row);
            let mark = if is_limited { " \\*" } else { "" };
            let sample = record.sample(name, row);
            cell(sample.map(|sample| spread(&sample, row.decimals) + mark))
        };
        let ratio = |other: &&str| cell(record.ratio(other, first, row).map(|it| it.text()));
        let title = [row.title.to_owned()].into_iter();
        title
            .chain(names.iter().map(figure))
            .chain(others.iter().map(ratio))
            .collect()
    };
    let table = table::markdown(&head, record.rows().into_iter().map(row));
    format!("{table}{LEGEND}{}", record.failures().join("\n"))
}
