//! Programs beside each other: what `bench_peers` writes and the report shows.
//!
//! 1. [`Row`]: what the narrow set compares; [`Must`]: what is asked of Convoy there.
//! 2. [`Interval`], [`compare`]: how surely, and against whom.
//! 3. [`NarrowRow`], [`Table`]: rows of the two files; [`narrow`], [`brief`], [`wide`]: the same as cells for
//!    people.
//! 4. [`Curve`], [`plots`]: what arrives of what is sent.

mod curves;
mod interval;
mod rows;
mod verdict;

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::{
    markdown::{cell, number},
    plot::Colour,
};

pub use curves::{BARE, Curve, plots, sizes};
pub use interval::Interval;
pub use rows::{Must, Row};
pub use verdict::{Comparison, Estimate, Series, Verdict, best, compare, ratios};

/// Of the contestants in their order, variants left out; Convoy's is the first.
pub const COLOURS: [Colour; 7] = [
    Colour::Blue,
    Colour::Orange,
    Colour::Vermilion,
    Colour::Green,
    Colour::Purple,
    Colour::Sky,
    Colour::Black,
];
/// How [`narrow`] is read.
pub const NARROW_LEGEND: &str = "
Figures are medians over the repetitions. The ratio is Convoy's figure divided by that of the peer
with the best median in the row, taken within each repetition: its median and the interval of 95 %
(between two order statistics). `yes` keeps the must in the whole interval, `median` at the median.
`+q`: with Convoy's txqueuelen on its interface. CPU time is that of both daemons, memory that of the
greater one. TCP by iperf3; ping by ping(8), 100 a second. The highest rate of UDP is that at which half
of the probes lose at most 1 %.
";
/// How [`wide`] is read.
pub const WIDE_LEGEND: &str = "
Figures are medians over the repetitions. The ratio is Convoy's figure divided by that of the other
with the best median in the row, taken within each repetition: its median, the least and the most. CPU
time and system calls are those of both daemons for a gigabyte that arrived (the calls counted in a run of
their own), memory is the peak of the greater daemon in that run. Requests and answers are 32 bytes, one
in flight.
";
const LIMITED: &str =
    "\\* In at least one repetition the generator, not the tunnel, set the limit.\n";

/// One contestant in a row.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Of the repetitions that have a figure.
    pub median: Option<f64>,
    /// In at least one repetition.
    pub generator_limited: bool,
    /// By repetition.
    pub values: Vec<Option<f64>>,
}

/// A row of the narrow set.
#[derive(Debug, Serialize, Deserialize)]
pub struct NarrowRow {
    /// What is compared.
    pub row: Row,
    /// Its name for people, with the unit.
    pub title: String,
    /// Without a tunnel.
    pub bare_veth: Option<f64>,
    /// In the order of the contestants.
    pub cells: Vec<Cell>,
    /// What came out of it.
    pub convoy_to_best: Comparison,
}

/// A table of the wide set.
#[derive(Debug, Serialize, Deserialize)]
pub struct Table {
    /// What the others are.
    pub title: String,
    /// Convoy is the first.
    pub contestants: Vec<String>,
    /// What was compared.
    pub rows: Vec<WideRow>,
}

/// A row of the wide set.
#[derive(Debug, Serialize, Deserialize)]
pub struct WideRow {
    /// What is compared.
    pub row: String,
    /// Its name for people, with the unit.
    pub title: String,
    /// Digits behind the point.
    pub decimals: usize,
    /// Without a tunnel.
    pub bare_veth: Option<f64>,
    /// In the order of the contestants.
    pub cells: Vec<Cell>,
    /// The other with the best median.
    pub best_other: Option<String>,
    /// Convoy's figure divided by that one's in the same repetition.
    pub ratio: Option<Sample>,
}

/// A contestant of the wide set that was asked for and could not be measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Absent {
    /// Of the contestant.
    pub name: String,
    /// The reason.
    pub why: String,
}

impl Cell {
    /// The cell of a contestant's figures.
    #[must_use]
    pub fn new(series: Series, generator_limited: bool) -> Self {
        Self {
            median: series.median(),
            generator_limited,
            values: series.values,
        }
    }
}

impl Absent {
    /// As a paragraph.
    #[must_use]
    pub fn told(&self) -> String {
        format!("\n**Not measured: {}**: {}\n", self.name, self.why)
    }
}

/// The narrow set for people, its head first. `contestants` are in the order of the cells.
#[must_use]
pub fn narrow<'a>(
    contestants: impl IntoIterator<Item = &'a str>,
    rows: &[NarrowRow],
) -> Vec<Vec<String>> {
    let head = head(contestants, &["best peer", "ratio", "95 %", "must", "kept"]);
    [head]
        .into_iter()
        .chain(rows.iter().map(narrow_row))
        .collect()
}

/// The narrow set in brief, Convoy and the best of its peers, its head first. Convoy is the first of
/// `contestants`, which are in the order of the cells.
#[must_use]
pub fn brief(contestants: &[&str], rows: &[NarrowRow]) -> Vec<Vec<String>> {
    let head = [
        "",
        "Convoy",
        "best of the others",
        "ratio",
        "95 %",
        "must",
        "kept",
    ];
    let row = |row: &NarrowRow| {
        let figure = |place: usize| {
            let median = row.cells.get(place).and_then(|cell| cell.median);
            number(median, row.row.decimals())
        };
        let best = row.convoy_to_best.best_peer.as_ref();
        let place = best.and_then(|best| contestants.iter().position(|name| name == best));
        let others = cell(
            best.zip(place)
                .map(|(best, place)| format!("{best}: {}", figure(place))),
        );
        let mut cells = vec![row.title.clone(), figure(0), others];
        cells.extend(comparison(row));
        cells
    };
    let head = head.map(str::to_owned).to_vec();
    [head].into_iter().chain(rows.iter().map(row)).collect()
}

/// A table of the wide set for people, its head first.
#[must_use]
pub fn wide(table: &Table) -> Vec<Vec<String>> {
    let contestants = table.contestants.iter().map(String::as_str);
    let head = head(contestants, &["best other", "ratio", "least–most"]);
    [head]
        .into_iter()
        .chain(table.rows.iter().map(wide_row))
        .collect()
}

/// What the mark at a figure means, if one of `cells` has it.
pub fn limited<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> &'static str {
    let mut cells = cells.into_iter();
    match cells.any(|cell| cell.generator_limited) {
        true => LIMITED,
        false => "",
    }
}

fn head<'a>(contestants: impl IntoIterator<Item = &'a str>, comparison: &[&str]) -> Vec<String> {
    let mut head = vec![String::new(), "bare veth".to_owned()];
    head.extend(contestants.into_iter().map(str::to_owned));
    head.extend(comparison.iter().map(|&title| title.to_owned()));
    head
}

fn narrow_row(row: &NarrowRow) -> Vec<String> {
    let mut cells = figures(&row.title, row.bare_veth, &row.cells, row.row.decimals());
    cells.push(cell(row.convoy_to_best.best_peer.as_ref()));
    cells.extend(comparison(row));
    cells
}

/// The ratio, its interval, what it must be, and whether it is.
fn comparison(row: &NarrowRow) -> [String; 4] {
    let comparison = &row.convoy_to_best;
    // Where nobody uses any, a ratio says nothing.
    let ratio = comparison
        .ratio
        .as_ref()
        .filter(|_| row.row != Row::CpuIdle);
    let interval = ratio.and_then(|ratio| ratio.interval);
    let verdict = match comparison.verdict {
        Verdict::Holds => "yes",
        Verdict::HoldsAtTheMedian => "median",
        Verdict::Fails => "**no**",
        Verdict::Unknown => "–",
    };
    [
        number(ratio.map(|ratio| ratio.median), 2),
        cell(interval.map(|Interval { low, high }| format!("{low:.2}–{high:.2}"))),
        comparison.must.clone(),
        verdict.to_owned(),
    ]
}

fn wide_row(row: &WideRow) -> Vec<String> {
    let mut cells = figures(&row.title, row.bare_veth, &row.cells, row.decimals);
    let ratio = row.ratio.as_ref();
    cells.extend([
        cell(row.best_other.as_ref()),
        number(ratio.map(|ratio| ratio.median), 2),
        cell(ratio.map(|ratio| format!("{:.2}–{:.2}", ratio.min, ratio.max))),
    ]);
    cells
}

/// What a row begins with.
fn figures(title: &str, bare_veth: Option<f64>, cells: &[Cell], decimals: usize) -> Vec<String> {
    let figure = |cell: &Cell| {
        let mark = if cell.generator_limited { " \\*" } else { "" };
        number(cell.median, decimals) + mark
    };
    let mut row = vec![title.to_owned(), number(bare_veth, decimals)];
    row.extend(cells.iter().map(figure));
    row
}

#[cfg(test)]
mod tests;
