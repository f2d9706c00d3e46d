//! A command's result in words: the same text on the terminal and on the page.

use std::path::{Path, PathBuf};

use crate::claim;
use crate::origin;
use crate::plot::Plot;
use crate::row::{self, Row, Run};
use crate::table::Table;
use anyhow::Result;
use itertools::Itertools as _;

/// A command's result: where it is kept, and what shows it.
pub struct Section {
    /// Heading on the page.
    pub title: &'static str,
    /// Target of `make`.
    pub command: &'static str,
    /// Result file.
    pub file: &'static str,
    /// In the order of the page.
    pub tables: &'static [Table],
    /// Each with a file of its own.
    pub plots: &'static [Plot],
    /// Explains the figures.
    pub legend: &'static str,
}

const LIMITED: &str = "\\* In at least one round the generator, not the contender, set the limit.";
/// Parts of the names of scenes that the page leaves out.
const DETAILS: [&str; 11] = [
    "p99.9",
    "request-udp",
    "connections-16",
    "flows-1000",
    "-bbr",
    "loss-",
    "tcp-down-syscalls",
    "tcp-down-memory",
    "tcp-8-up-memory",
    "tcp-8-down-",
    "tcp-8-up-syscalls",
];
/// Tells how targets are judged.
pub const TARGETS: &str = "\
A ratio divides the figures within each round, by those of the other with the best median. Brackets hold its 95 %
interval (between two order statistics), or for fewer than six rounds its lowest and highest value. A target is met by
the whole interval (`yes`) or only by the median (`median`).
";

impl Section {
    /// Formats a whole result as Markdown.
    fn text(&self, run: &Run) -> String {
        let text = self.text_of(run, &run.rows);
        match text.contains(claim::HEAD) {
            true => format!("{text}\n{TARGETS}"),
            false => text,
        }
    }

    /// The same for the page: without details, and without [`TARGETS`].
    pub fn page(&self, run: &Run) -> String {
        let is_detail = |row: &Row| DETAILS.iter().any(|it| row.scene.contains(it));
        let mut rows = run.rows.clone();
        rows.retain(|row| !is_detail(row) && !row.contender.ends_with("+q"));
        self.text_of(run, &rows)
    }

    fn text_of(&self, run: &Run, shown: &[Row]) -> String {
        let mut parts = vec![run.origin.paragraph(), claim::table(run)];
        parts.extend(self.tables.iter().map(|table| table.text(shown)));
        let is_limited = parts.iter().any(|part| part.contains("\\* |"));
        parts.extend(is_limited.then(|| LIMITED.to_owned()));
        parts.push(self.legend.to_owned());
        let notes = merged(&run.origin.notes).into_iter();
        parts.push(notes.map(|note| format!("- {note}")).join("\n"));
        parts.retain(|part| !part.is_empty());
        let mut parts = parts.iter().map(|part| part.trim_end().to_owned() + "\n");
        parts.join("\n")
    }

    /// Prints a result. Writes it and its plots to `named`, or if that is absent and the result is `whole`, to the usual
    /// file: a partial or trial run is kept only in a named file.
    pub fn keep(&self, run: &Run, named: Option<&Path>, whole: bool) -> Result<()> {
        println!("{}", self.text(run));
        if let Some(file) = self.file(named, whole) {
            run.save(&file)?;
            for (plot, svg) in self.pictures(run)? {
                row::write(svg.as_bytes(), &file.with_file_name(plot.file))?;
            }
        }
        Ok(())
    }

    /// Draws the plots that have points.
    pub fn pictures(&self, run: &Run) -> Result<Vec<(&'static Plot, String)>> {
        let drawn = self.plots.iter();
        let drawn = drawn.filter_map(|plot| Some(plot.svg(run).transpose()?.map(|it| (plot, it))));
        drawn.collect()
    }

    /// The file that [`Self::keep`] writes to.
    fn file(&self, named: Option<&Path>, whole: bool) -> Option<PathBuf> {
        let usual = whole.then(|| Path::new(origin::DIRECTORY).join(self.file));
        named.map(Path::to_owned).or(usual)
    }
}

/// Merges notes that differ only in the round.
fn merged(notes: &[String]) -> Vec<String> {
    let mut merged: Vec<(&str, Vec<&str>, &str)> = Vec::new();
    for note in notes {
        let in_round = || {
            let (what, rest) = note.split_once(" in round ")?;
            let (round, why) = rest.split_once(": ")?;
            Some((what, vec![round], why))
        };
        let (what, rounds, why) = in_round().unwrap_or((note, Vec::new(), ""));
        match merged.iter_mut().find(|it| (it.0, it.2) == (what, why)) {
            Some((_, known, _)) => known.extend(rounds),
            None => merged.push((what, rounds, why)),
        }
    }
    let text = |(what, rounds, why): (&str, Vec<&str>, &str)| match &rounds[..] {
        [] => what.to_owned(),
        [round] => format!("{what} in round {round}: {why}"),
        _ => format!("{what} in rounds {}: {why}", rounds.join(", ")),
    };
    merged.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_in_several_rounds_is_one_note() {
        let notes = [
            "Failed: a in round 1: late",
            "b: absent",
            "Failed: c in round 1: late",
            "Failed: a in round 3: late",
        ];
        let expected = [
            "Failed: a in rounds 1, 3: late",
            "b: absent",
            "Failed: c in round 1: late",
        ];
        assert_eq!(merged(&notes.map(str::to_owned)), expected);
    }

    #[test]
    fn only_a_whole_result_is_kept_without_a_named_file() {
        let section = Section {
            title: "",
            command: "",
            file: "forward.jsonl",
            tables: &[],
            plots: &[],
            legend: "",
        };
        let usual = Path::new(origin::DIRECTORY).join("forward.jsonl");
        assert_eq!(section.file(None, true), Some(usual));
        assert_eq!(section.file(None, false), None);
        let named = Path::new("b.jsonl");
        assert_eq!(section.file(Some(named), false), Some(named.to_owned()));
    }
}
