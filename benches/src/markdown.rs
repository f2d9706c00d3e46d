//! Tables that are read as they are, and as Markdown.

use std::fmt::Display;

/// A table whose first row is its head. Columns are as wide as their widest cell; the first is flush left, the others flush right.
pub fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            let padded = if column == 0 {
                format!("{cell}{gap}")
            } else {
                format!("{gap}{cell}")
            };
            text += &format!("| {padded} ");
        }
        text += "|\n";
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let colon = if column == 0 { "-" } else { ":" };
                text += &format!("|{}{colon}", "-".repeat(width + 1));
            }
            text += "|\n";
        }
    }
    text
}

/// A cell; a dash for what was not measured.
pub fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A number for a cell.
#[must_use]
pub fn number(value: Option<f64>, decimals: usize) -> String {
    cell(value.map(|value| format!("{value:.decimals$}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_in_the_text_too() {
        let rows = [["", "kpps"], ["64 B", "1.5"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            table(&rows),
            "|      | kpps |\n|------|-----:|\n| 64 B |  1.5 |\n"
        );
    }
}
