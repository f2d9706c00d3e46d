//! A report in Markdown.

use convoy_benches::{
    markdown,
    peers::{self, NARROW_LEGEND},
};

use crate::outcome::told_failures;
use crate::report::Report;

/// The table, with what must be known to read it.
pub(crate) fn markdown(report: &Report) -> String {
    let names = report.header.contestants.iter().map(|one| &one.name[..]);
    let cells = report.rows.iter().flat_map(|row| &row.cells);
    let mut text = report.header.markdown() + "\n";
    text += &markdown::table(&peers::narrow(names, &report.rows));
    text += NARROW_LEGEND;
    text += peers::limited(cells);
    text + &told_failures(&report.turns)
}

#[cfg(test)]
mod tests;
