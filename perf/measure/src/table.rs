//! Tables for a terminal and in Markdown.

use comfy_table::{CellAlignment, Table, presets};

/// For a terminal: the first column flush left, figures flush right.
pub(crate) fn plain(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_row(head.split(',')).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// In Markdown.
pub(crate) fn markdown(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(head.split(',')).add_rows(rows);
    table.trim_fmt() + "\n"
}

/// A dash if there is no figure.
pub(crate) fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}
