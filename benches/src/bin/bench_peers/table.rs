//! A report in Markdown.

use convoy_benches::{
    markdown,
    peers::{self, NARROW_LEGEND},
};

use crate::report::Report;

/// The table, with what must be known to read it.
pub(crate) fn markdown(report: &Report) -> String {
    let names = report.header.contestants.iter().map(|one| &one.name[..]);
    let cells = report.rows.iter().flat_map(|row| &row.cells);
    let mut text = report.header.markdown() + "\n";
    text += &markdown::table(&peers::narrow(names, &report.rows));
    text += NARROW_LEGEND;
    text += peers::limited(cells);
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

#[cfg(test)]
mod tests;
