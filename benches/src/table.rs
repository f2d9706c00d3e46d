//! Markdown tables that read well as plain text, too.

use std::fmt::Display;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

/// A table whose first row is its head: the first column flush left, the others flush right.
pub(crate) fn markdown(rows: Vec<Vec<String>>) -> String {
    let mut rows = rows.into_iter();
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(rows.next().unwrap_or_default())
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

/// A cell; a dash where nothing was measured.
pub(crate) fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A number for a cell.
pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    cell(value.map(|value| format!("{value:.decimals$}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_in_the_text_too() {
        let rows = [["", "kpps"], ["64 B", "1.5"]].map(|row| row.map(str::to_owned).to_vec());
        let expected = "|      | kpps |\n|------|-----:|\n| 64 B |  1.5 |\n";
        assert_eq!(markdown(rows.into()), expected);
    }
}
