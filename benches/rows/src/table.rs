//! Markdown tables that are also readable as plain text.

use std::fmt::Display;

use comfy_table::{CellAlignment, Table as Drawn, presets::ASCII_MARKDOWN};
use convoy_lab::measure::Sample;
use itertools::Itertools as _;

use crate::row::{Row, properties};

/// Medians of rows, by two of their properties.
pub struct Table {
    /// Heading above; empty for none.
    pub heading: &'static str,
    /// Chooses the rows.
    pub shows: fn(&Row) -> bool,
    /// Title of the first column.
    pub corner: &'static str,
    /// Title of a row's line.
    pub line: fn(&Row) -> String,
    /// Title of a row's column.
    pub column: fn(&Row) -> String,
    /// Whether the lowest and highest value follow the median.
    pub has_spread: bool,
}

impl Table {
    /// Draws the table; empty if it shows no row. Lines and columns come in the order of the rows.
    pub fn text(&self, rows: &[Row]) -> String {
        let rows: Vec<_> = rows.iter().filter(|row| (self.shows)(row)).collect();
        if rows.is_empty() {
            return String::new();
        }
        let columns: Vec<_> = rows.iter().map(|row| (self.column)(row)).unique().collect();
        let lines = rows.iter().map(|row| (self.line)(row)).unique();
        let lines = lines.map(|line| {
            let cells = columns.iter().map(|column| {
                let is_here =
                    |row: &&&Row| (self.line)(row) == line && (self.column)(row) == *column;
                self.cell(&rows.iter().filter(is_here).copied().collect::<Vec<_>>())
            });
            [line.clone()].into_iter().chain(cells).collect()
        });
        let head = format!("{} | {}", self.corner, columns.join(" | "));
        let table = markdown(&head, lines);
        match self.heading {
            "" => table,
            heading => format!("### {heading}\n\n{table}"),
        }
    }

    fn cell(&self, rows: &[&Row]) -> String {
        let Some(sample) = Sample::of(rows.iter().map(|row| row.value).collect()) else {
            return cell(None::<f64>);
        };
        let (decimals, _) = properties(&rows[0].unit);
        let is_limited = rows.iter().any(|row| row.is_limited);
        let mark = if is_limited { "\\*" } else { "" };
        match self.has_spread {
            true => spread(&sample, decimals) + mark,
            false => number(Some(sample.median), decimals) + mark,
        }
    }
}

/// A table: the first column flush left, the others flush right. Bars separate the titles in `head`.
pub fn markdown(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Drawn::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(head.split(" | ")).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines();
    let lines = lines.map(|line| line.trim_end().to_owned() + "\n");
    let mut lines: Vec<_> = lines.collect();
    if let Some((first, others)) = lines.get(1).and_then(|rule| rule[1..].split_once('|')) {
        lines[1] = format!("|{first}|{}", others.replace("-|", ":|"));
    }
    lines.concat()
}

/// A cell; a dash if there is no value.
pub fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A cell with a number.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    cell(value.map(|value| format!("{value:.decimals$}")))
}

/// The median, with the lowest and highest value in brackets if there are several.
pub fn spread(sample: &Sample, decimals: usize) -> String {
    let (median, min, max) = (sample.median, sample.min, sample.max);
    match sample.values.len() {
        1 => format!("{median:.decimals$}"),
        _ => format!("{median:.decimals$} ({min:.decimals$}–{max:.decimals$})"),
    }
}
