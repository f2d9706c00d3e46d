//! A report in Markdown.

use convoy_benches::markdown;

use crate::report::{Cell, Report, RowReport};
use crate::rows::Row;
use crate::verdict::{Comparison, Estimate, Verdict};

const LEGEND: &str = "\
Figures are medians over the repetitions. The ratio is Convoy's figure divided by that of the peer
with the best median in the row, taken within each repetition: its median and the interval of 95 %
(between two order statistics). `yes` keeps the must in the whole interval, `median` at the median.
`+q`: with Convoy's txqueuelen on its interface. CPU time is that of both daemons, memory that of the
greater one. TCP by iperf3; ping by ping(8), 100 a second.
";
pub(crate) const LIMITED: &str =
    "\\* In at least one repetition the generator, not the tunnel, set the limit.\n";

/// The table, with what must be known to read it.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = report.header.markdown() + "\n";
    text += &markdown::table(&cells(report));
    text += "\n";
    text += LEGEND;
    let mut all = report.rows.iter().flat_map(|row| &row.cells);
    if all.any(|cell| cell.generator_limited) {
        text += LIMITED;
    }
    for turn in &report.turns {
        for failure in &turn.outcome.failures {
            text += &format!(
                "\nFailed: {} in repetition {}: {failure}\n",
                turn.contestant,
                turn.repetition + 1
            );
        }
    }
    text
}

fn cells(report: &Report) -> Vec<Vec<String>> {
    let mut head = vec![String::new(), "bare veth".to_owned()];
    head.extend(report.header.contestants.iter().map(|one| one.name.clone()));
    head.extend(["best peer", "ratio", "95 %", "must", "kept"].map(str::to_owned));
    let mut rows = vec![head];
    rows.extend(report.rows.iter().map(row));
    rows
}

fn row(row: &RowReport) -> Vec<String> {
    let figure = |value: Option<f64>| number(value, row.row.decimals());
    let cell = |cell: &Cell| figure(cell.median) + if cell.generator_limited { " \\*" } else { "" };
    let mut cells = vec![row.title.to_owned(), figure(row.bare_veth)];
    cells.extend(row.cells.iter().map(cell));
    cells.extend(comparison(row.row, &row.convoy_to_best));
    cells
}

fn comparison(row: Row, comparison: &Comparison) -> [String; 5] {
    let ratio = comparison.ratio.as_ref();
    let interval = ratio.and_then(|ratio| ratio.interval);
    // Where nobody uses any, a ratio says nothing.
    let ratio = ratio.filter(|_| row != Row::CpuIdle);
    let interval = interval.filter(|_| row != Row::CpuIdle);
    [
        comparison.best_peer.clone().unwrap_or_else(none),
        number(ratio.map(|Estimate { median, .. }| *median), 2),
        interval.map_or_else(none, |interval| {
            format!("{:.2}–{:.2}", interval.low, interval.high)
        }),
        comparison.must.clone(),
        match comparison.verdict {
            Verdict::Holds => "yes",
            Verdict::HoldsAtTheMedian => "median",
            Verdict::Fails => "**no**",
            Verdict::Unknown => "–",
        }
        .to_owned(),
    ]
}

pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(none, |value| format!("{value:.decimals$}"))
}

pub(crate) fn none() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests;
