//! Convoy against other programs.

use std::path::Path;

use convoy_benches::markdown;
use serde::Deserialize;

use crate::{
    measured::Measured,
    section::{Section, cell, number},
};

pub(crate) const FILE: &str = "peers.json";

/// `peers.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Peers {
    #[serde(flatten)]
    pub(crate) measured: Measured,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    /// As it is called in the file.
    #[serde(rename = "row")]
    pub(crate) name: String,
    title: String,
    /// In the order of the contestants.
    pub(crate) cells: Vec<Cell>,
    convoy_to_best: Comparison,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Cell {
    pub(crate) median: Option<f64>,
    generator_limited: bool,
}

#[derive(Debug, Deserialize)]
struct Comparison {
    best_peer: Option<String>,
    ratio: Option<Estimate>,
    must: String,
    verdict: String,
}

#[derive(Debug, Deserialize)]
struct Estimate {
    median: f64,
    interval: Option<Interval>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Interval {
    low: f64,
    high: f64,
}

const LEGEND: &str = "
Medians; the ratio is Convoy's figure to that of the best peer within each repetition, with its interval
of 95 %. `*`: the generator set the limit in a repetition. `+q`: with Convoy's txqueuelen.
";

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Against other programs",
        command: "make bench-peers",
        file: FILE,
    };
    section.of(results, |peers: &Peers| {
        let names = peers
            .measured
            .contestants
            .iter()
            .map(|one| one.name.clone());
        let mut head = vec![String::new()];
        head.extend(names);
        head.extend(["best peer", "ratio", "95 %", "must", "verdict"].map(str::to_owned));
        let rows = peers.rows.iter().map(row);
        let rows: Vec<_> = [head].into_iter().chain(rows).collect();
        peers.measured.told() + "\n" + &markdown::table(&rows) + LEGEND
    })
}

fn row(row: &Row) -> Vec<String> {
    let figure = |cell: &Cell| {
        let mark = if cell.generator_limited { " \\*" } else { "" };
        number(cell.median, 3) + mark
    };
    let Comparison {
        best_peer,
        ratio,
        must,
        verdict,
    } = &row.convoy_to_best;
    let interval = ratio.as_ref().and_then(|ratio| ratio.interval);
    let interval = interval.map(|Interval { low, high }| format!("{low:.2}–{high:.2}"));
    let mut cells = vec![row.title.clone()];
    cells.extend(row.cells.iter().map(figure));
    cells.extend([
        cell(best_peer.as_ref()),
        number(ratio.as_ref().map(|ratio| ratio.median), 2),
        cell(interval),
        must.clone(),
        verdict.clone(),
    ]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_suite_is_a_row_of_the_table() {
        let json = r#"{"row": "tcp-up", "title": "TCP up, Gbit/s", "bare_veth": 20.1,
            "cells": [
                {"contestant": "convoy", "median": 5.2, "generator_limited": false, "values": [5.2]},
                {"contestant": "gotatun", "median": null, "generator_limited": true, "values": [null]}],
            "convoy_to_best": {"best_peer": "tailscale",
                "ratio": {"median": 1.404, "interval": {"low": 1.3, "high": 1.5}, "values": [1.4]},
                "must": "≥ 1.25 ×", "verdict": "holds"}}"#;
        let cells = row(&serde_json::from_str(json).unwrap());
        let expected = [
            "TCP up, Gbit/s",
            "5.200",
            "– \\*",
            "tailscale",
            "1.40",
            "1.30–1.50",
        ];
        assert_eq!(cells[..6], expected);
        assert_eq!(cells[6..], ["≥ 1.25 ×", "holds"]);
    }
}
