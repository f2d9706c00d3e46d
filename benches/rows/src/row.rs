//! Results: rows of one form, kept as JSON Lines and read back by the report.
//!
//! The first line of a file is the [`Origin`] of its run, every other line a [`Row`].

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result};
use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Test in which it was measured.
    pub scene: String,
    /// Program or configuration that was measured.
    pub contender: String,
    /// Figure in words; may be empty if the unit says it all.
    pub figure: String,
    /// Unit; decides how many decimals are shown, and whether more is better.
    pub unit: String,
    /// Position on the axis along which a scene varies: bytes, peers, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// Starts at 0.
    pub round: u32,
    /// Value, in the unit.
    pub value: f64,
    /// Whether the generator, not the contender, set the limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_limited: bool,
}

/// All rows of one command.
#[derive(Clone, Debug)]
pub struct Run {
    /// The run's machine, commit and command.
    pub origin: Origin,
    /// In the order of measurement.
    pub rows: Vec<Row>,
}

/// A figure in words, and its unit.
pub type Figure<'a> = (&'a str, &'a str);

/// Units: decimals shown, and whether more is better.
const UNITS: [(&str, usize, bool); 21] = [
    ("Gbit/s", 2, true),
    ("Mbit/s", 0, true),
    ("kpps", 1, true),
    ("1/s", 0, true),
    ("flows", 0, true),
    ("GB/CPU s", 2, true),
    ("CPU s/GB", 2, false),
    ("CPU ns/packet", 0, false),
    ("kcalls/GB", 1, false),
    ("packets/call", 1, true),
    ("packets/read", 1, true),
    ("segments/send", 1, true),
    ("MB", 1, false),
    ("MiB", 1, false),
    ("×", 2, true),
    ("s", 1, false),
    ("ms", 3, false),
    ("µs", 0, false),
    ("ns", 1, false),
    ("%", 2, false),
    ("CPUs", 2, false),
];

/// Decimals shown of values in a unit, and whether more of it is better.
pub fn properties(unit: &str) -> (usize, bool) {
    let known = UNITS.into_iter().find(|(name, ..)| *name == unit);
    known.map_or((0, true), |(_, decimals, is_better)| (decimals, is_better))
}

impl Row {
    /// A value of a contender in a scene, with its figure and unit.
    pub fn new(scene: &str, contender: &str, of: Figure<'_>, round: u32, value: f64) -> Self {
        let (figure, unit) = of;
        Self {
            scene: scene.to_owned(),
            contender: contender.to_owned(),
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            at: None,
            round,
            value,
            is_limited: false,
        }
    }

    /// Places the row on its scene's axis.
    pub fn at(mut self, at: f64) -> Self {
        self.at = Some(at);
        self
    }

    /// Marks the row if the generator set the limit.
    pub fn limited(mut self, is_limited: bool) -> Self {
        self.is_limited = is_limited;
        self
    }

    /// Returns whether it is this figure of a scene.
    pub fn is_of(&self, scene: &str, figure: Figure<'_>) -> bool {
        self.scene == scene && self.of() == figure
    }

    /// Its place on the axis, or 0.
    pub fn place(&self) -> f64 {
        self.at.unwrap_or_default()
    }

    /// Its figure and unit.
    pub(crate) fn of(&self) -> Figure<'_> {
        (&self.figure, &self.unit)
    }

    /// The figure with its unit.
    pub fn label(&self) -> String {
        match self.of() {
            ("", unit) => unit.to_owned(),
            (figure, "") => figure.to_owned(),
            (figure, unit) => format!("{figure}, {unit}"),
        }
    }
}

impl Run {
    /// A run of this program that starts now.
    pub fn new(versions: Vec<String>) -> Self {
        Self {
            origin: Origin::new(versions),
            rows: Vec::new(),
        }
    }

    /// Adds a row, unless its value is no number.
    pub fn push(&mut self, row: Row) {
        if row.value.is_finite() {
            self.rows.push(row);
        }
    }

    /// Values of the rows that `is_in` selects, in the order of measurement.
    pub fn select(&self, is_in: impl Fn(&Row) -> bool) -> Vec<f64> {
        let rows = self.rows.iter().filter(|row| is_in(row));
        rows.map(|row| row.value).collect()
    }

    /// Values of a contender's figure in a scene, by round.
    fn values(&self, scene: &str, contender: &str, figure: Figure<'_>) -> BTreeMap<u32, f64> {
        let rows = self.rows.iter().filter(|row| row.at.is_none());
        rows.filter(|row| row.is_of(scene, figure) && row.contender == contender)
            .map(|row| (row.round, row.value))
            .collect()
    }

    /// Values of all rounds of a contender's figure in a scene.
    pub fn sample(&self, scene: &str, contender: &str, figure: Figure<'_>) -> Option<Sample> {
        let values = self.values(scene, contender, figure);
        Sample::of(values.into_values().collect())
    }

    /// Ratio of the first contender's figure in a scene to the second's, within each round.
    pub fn ratio(&self, scene: &str, pair: [&str; 2], figure: Figure<'_>) -> Option<Sample> {
        let [one, other] = pair.map(|contender| self.values(scene, contender, figure));
        let values = one.into_iter();
        let ratios = values.filter_map(|(round, value)| Some(value / other.get(&round)?));
        Sample::of(ratios.filter(|ratio| ratio.is_finite()).collect())
    }

    /// Reads a result file; `None` if it does not exist.
    ///
    /// # Errors
    /// Names the file, the line and the place in it.
    pub fn load(file: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| file.display().to_string())?,
        };
        let mut lines = (1..).zip(text.lines());
        let at = |number: usize| format!("{}: line {number}", file.display());
        let (_, first) = lines.next().with_context(|| at(1))?;
        Ok(Some(Self {
            origin: serde_json::from_str(first).with_context(|| at(1))?,
            rows: lines
                .map(|(number, line)| serde_json::from_str(line).with_context(|| at(number)))
                .collect::<Result<_, _>>()?,
        }))
    }

    /// Writes a result file, and prints its path.
    pub fn save(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_string(&self.origin)? + "\n";
        for row in &self.rows {
            text += &(serde_json::to_string(row)? + "\n");
        }
        write(text.as_bytes(), file)?;
        eprintln!("all values: {}", file.display());
        Ok(())
    }
}

/// Writes a file and creates its directory.
pub fn write(bytes: &[u8], file: &Path) -> Result<()> {
    let directory = file.parent().map_or(Ok(()), fs::create_dir_all);
    let written = directory.and_then(|()| fs::write(file, bytes));
    written.with_context(|| file.display().to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ratio;

    /// A run of one scene, with values by contender and round.
    pub(crate) fn run(scene: &str, unit: &str, values: &[(&str, &[f64])]) -> Run {
        let mut run = Run::new(Vec::new());
        for (contender, values) in values {
            for (round, value) in (0..).zip(*values) {
                run.push(Row::new(scene, contender, ("figure", unit), round, *value));
            }
        }
        run
    }

    #[test]
    fn a_result_has_one_line_a_row_and_a_malformed_file_is_refused_with_the_place() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.jsonl");
        assert!(Run::load(&file).unwrap().is_none());
        let mut kept = run("tcp-up", "Gbit/s", &[("a", &[1.5, 2.5])]);
        kept.rows[1] = kept.rows[1].clone().at(7.0).limited(true);
        kept.save(&file).unwrap();
        assert_eq!(Run::load(&file).unwrap().unwrap().rows, kept.rows);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 3);
        fs::write(&file, text.replace("\"round\":1", "\"round\":\"x\"")).unwrap();
        let refusal = format!("{:#}", Run::load(&file).unwrap_err());
        let place = "a.jsonl: line 3: invalid type";
        assert!(refusal.contains(place), "{refusal}");
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_one_without_a_figure_is_left_out() {
        let figures: [(&str, &[f64]); 2] = [("a", &[2.0, 9.0, 8.0]), ("b", &[1.0, 3.0, 0.0])];
        let mut run = run("tcp-up", "Gbit/s", &figures);
        let ratio = |run: &Run| run.ratio("tcp-up", ["a", "b"], ("figure", "Gbit/s"));
        assert_eq!(ratio(&run).unwrap().values, [2.0, 3.0]);
        run.rows.remove(0);
        let ratio = ratio(&run).unwrap();
        assert_eq!(ratio::text(&ratio), "3.00 (3.00–3.00)");
    }
}
