//! Markdown tables that are also readable as plain text.

use std::fmt::Display;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use convoy_lab::measure::Sample;

/// A table: the first column flush left, the others flush right. Bars separate the titles in `head`.
pub(crate) fn markdown(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(head.split(" | "))
        .add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut lines: Vec<_> = table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect();
    if let Some((first, others)) = lines.get(1).and_then(|rule| rule[1..].split_once('|')) {
        lines[1] = format!("|{first}|{}", others.replace("-|", ":|"));
    }
    lines.concat()
}

/// A cell; a dash if there is no value.
pub(crate) fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A cell with a number.
pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    cell(value.map(|value| format!("{value:.decimals$}")))
}

/// A cell with a share in percent.
pub(crate) fn percent(share: Option<f64>) -> String {
    number(share.map(|share| share * 100.0), 1)
}

/// The median, with the lowest and highest value in brackets.
pub(crate) fn spread(sample: &Sample, decimals: usize) -> String {
    let Sample {
        median, min, max, ..
    } = sample;
    format!("{median:.decimals$} ({min:.decimals$}–{max:.decimals$})")
}
