//! What each stage takes, and what has changed since another commit.

use std::path::Path;

use convoy_benches::{
    markdown::{self, cell, number},
    origin::Origin,
};
use convoy_lab::measure::Sample;
use serde::Deserialize;

use crate::section::{Section, rows, told};

/// `stages.json` and `compare.json`, as far as they are shown.
#[derive(Debug, Deserialize)]
struct Report {
    origin: Origin,
    base: Option<String>,
    rounds: u32,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    figure: String,
    base: Option<Sample>,
    noise: Option<f64>,
    compared: Option<Sample>,
    verdict: String,
    instructions: Instructions,
}

#[derive(Debug, Deserialize)]
struct Instructions {
    base: Option<f64>,
    head: Option<f64>,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Stages",
        command: "make bench-stages",
        file: "stages.json",
    };
    section.of(results, |report: &Report| {
        let head = ["stage", "median, ns", "noise, %", "instructions"];
        let row = |row: &Row| {
            [
                row.name.trim_start_matches("stages::").to_owned(),
                number(row.base.as_ref().map(|sample| sample.median), 1),
                number(row.noise.map(|noise| noise * 100.0), 1),
                number(row.instructions.head, 0),
            ]
        };
        let table = markdown::table(&rows(head, report.rows.iter().map(row)));
        format!(
            "{}\n{} rounds; noise is how far two runs of one round were apart. Instructions are those of \
             one repetition.\n\n{table}",
            told(&report.origin),
            report.rounds
        )
    })
}

pub(crate) fn comparison(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Since another commit",
        command: "make bench-compare BASE=REF",
        file: "compare.json",
    };
    section.of(results, |report: &Report| {
        let changed: Vec<_> = report.rows.iter().filter(|row| row.is_changed()).collect();
        let head = [
            "what",
            "head ÷ base",
            "noise, %",
            "verdict",
            "instructions, head ÷ base",
        ];
        let row = |row: &&Row| {
            let counted = row.instructions.head.zip(row.instructions.base);
            [
                format!("{} ({})", row.name, row.figure),
                number(row.compared.as_ref().map(|ratio| ratio.median), 3),
                number(row.noise.map(|noise| noise * 100.0), 1),
                row.verdict.clone(),
                number(counted.map(|(head, base)| head / base), 4),
            ]
        };
        format!(
            "{}\n{} of {} figures have changed since {}, {} rounds.\n\n{}",
            told(&report.origin),
            changed.len(),
            report.rows.len(),
            cell(report.base.as_ref()),
            report.rounds,
            markdown::table(&rows(head, changed.iter().map(row)))
        )
    })
}

impl Row {
    fn is_changed(&self) -> bool {
        matches!(self.verdict.as_str(), "better" | "worse")
    }
}
