//! What a run of the wide set found: the JSON file, and the source of tables and plots.

use convoy_benches::peers::{self, Absent, BARE, Cell, Series, Table, WideRow, best, ratios};
use convoy_lab::measure::Sample;
use serde::Serialize;

use super::curve::Curve;
use super::plan::Test;
use super::rows::Row;
use super::turn::{Details, Outcome};
use crate::contestants::{Contestant, Protocol};
use crate::header::Header;
use crate::outcome;
use crate::udp::Probe;

/// The object in the JSON file.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) header: Header,
    /// Who was asked for and could not be measured.
    pub(super) absent: Vec<Absent>,
    pub(super) tables: [Table; 2],
    pub(super) curves: Vec<peers::Curve>,
    /// The veth without a tunnel, once, before the repetitions.
    bare_veth: Outcome,
    /// In the order in which they were measured.
    pub(super) turns: Vec<TurnReport>,
}

pub(super) type TurnReport = outcome::TurnReport<Row, Details>;

/// What the report is made of.
pub(super) struct Measured {
    pub(super) tests: Vec<Test>,
    pub(super) absent: Vec<Absent>,
    pub(super) bare_veth: Outcome,
    pub(super) turns: Vec<TurnReport>,
}

impl Report {
    /// Compares what `measured` holds of `contestants`, of whom Convoy is the first.
    pub(super) fn new(
        contestants: &[Contestant],
        repetitions: u32,
        secs: u64,
        measured: Measured,
    ) -> Self {
        let table = |title: &str, is_in: fn(Test) -> bool, protocol| {
            let is_asked = |one: &&Contestant| one.is_convoy() || one.protocol == protocol;
            let names = contestants.iter().filter(is_asked);
            let names: Vec<_> = names.map(|one| one.name.clone()).collect();
            let tests = measured.tests.iter().filter(|test| is_in(**test));
            let rows = tests.flat_map(|test| test.rows());
            Table {
                title: title.to_owned(),
                rows: rows
                    .map(|row| wide_row(row, &names, repetitions, &measured))
                    .collect(),
                contestants: names,
            }
        };
        Self {
            header: Header::of_this_run(contestants, repetitions, secs),
            tables: [
                table("WireGuard", Test::is_for_peers, Protocol::WireGuard),
                table("Ordinary VPNs", Test::is_for_others, Protocol::OpenVpn),
            ],
            curves: lines(contestants, &measured),
            absent: measured.absent,
            bare_veth: measured.bare_veth,
            turns: measured.turns,
        }
    }
}

fn wide_row(row: Row, names: &[String], repetitions: u32, measured: &Measured) -> WideRow {
    let turns = &measured.turns;
    let series = names.iter();
    let series = series.map(|name| outcome::series(turns, name, row, repetitions));
    let series: Vec<_> = series.collect();
    let (best_other, ratio) = compare(row, &series);
    let cell = |series: Series| {
        let is_limited = outcome::is_limited(turns, &series.name, row);
        Cell::new(series, is_limited)
    };
    WideRow {
        row: row.name(),
        title: row.title(),
        decimals: row.decimals(),
        bare_veth: measured.bare_veth.figures.get(&row).copied(),
        cells: series.into_iter().map(cell).collect(),
        best_other,
        ratio,
    }
}

fn compare(row: Row, series: &[Series]) -> (Option<String>, Option<Sample>) {
    let Some((convoy, others)) = series.split_first() else {
        return (None, None);
    };
    let best = best(row.more_is_better(), others);
    let ratio = best.and_then(|best| Sample::of(ratios(convoy, best)));
    (best.map(|best| best.name.clone()), ratio)
}

/// Sizes from the smallest, the contestants of each in their order, the bare veth last.
fn lines(contestants: &[Contestant], measured: &Measured) -> Vec<peers::Curve> {
    let of = |name: &str| -> Vec<&Curve> {
        let own = measured.turns.iter().filter(|turn| turn.contestant == name);
        own.flat_map(|turn| &turn.outcome.details.curves).collect()
    };
    let mut by_name: Vec<_> = contestants
        .iter()
        .map(|one| (one.name.as_str(), of(&one.name)))
        .collect();
    by_name.push((BARE, measured.bare_veth.details.curves.iter().collect()));
    let mut lines: Vec<_> = by_name
        .into_iter()
        .flat_map(|(name, curves)| lines_of(name, &curves))
        .collect();
    // Stable: those of a size stay in their order.
    lines.sort_by_key(|line| line.payload);
    lines
}

fn lines_of(name: &str, curves: &[&Curve]) -> Vec<peers::Curve> {
    let mut payloads: Vec<_> = curves.iter().map(|curve| curve.payload).collect();
    payloads.sort_unstable();
    payloads.dedup();
    let line = |payload| {
        let own: Vec<_> = curves
            .iter()
            .filter(|curve| curve.payload == payload)
            .collect();
        let longest = own.iter().map(|curve| curve.points.len()).max();
        let point = |number: usize| {
            let median = |value: fn(&Probe) -> f64| {
                let points = own.iter().filter_map(|curve| curve.points.get(number));
                Some(Sample::of(points.map(value).collect())?.median)
            };
            Some((
                median(|point| point.sent_kpps)?,
                median(|point| point.arrived_kpps)?,
            ))
        };
        peers::Curve {
            payload,
            contestant: name.to_owned(),
            points: (0..longest.unwrap_or(0)).filter_map(point).collect(),
        }
    };
    payloads.into_iter().map(line).collect()
}

#[cfg(test)]
pub(super) mod tests;
