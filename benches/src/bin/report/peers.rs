//! Convoy against other programs.

use std::path::Path;

use convoy_benches::markdown;
use convoy_lab::measure::Host;
use serde::Deserialize;

use crate::section::{Section, cell, number};

/// `peers.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Peers {
    command: Vec<String>,
    commit: Option<String>,
    host: Host,
    repetitions: u32,
    contestants: Vec<Contestant>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Contestant {
    name: String,
    version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Row {
    title: String,
    cells: Vec<Cell>,
    convoy_to_best: Comparison,
}

#[derive(Debug, Deserialize)]
struct Cell {
    median: Option<f64>,
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
        file: "peers.json",
    };
    section.of(results, |peers: &Peers| {
        let names = peers.contestants.iter().map(|one| one.name.clone());
        let mut head = vec![String::new()];
        head.extend(names);
        head.extend(["best peer", "ratio", "95 %", "must", "verdict"].map(str::to_owned));
        let rows = peers.rows.iter().map(row);
        let rows: Vec<_> = [head].into_iter().chain(rows).collect();
        told(peers) + "\n" + &markdown::table(&rows) + LEGEND
    })
}

fn told(peers: &Peers) -> String {
    let Host {
        cpus, cpu, kernel, ..
    } = &peers.host;
    let version = |one: &Contestant| {
        let version = one.version.as_ref()?;
        // A variant is the same program.
        (!one.name.contains('+')).then(|| format!("{} ({version})", one.name))
    };
    let versions: Vec<_> = peers.contestants.iter().filter_map(version).collect();
    format!(
        "{cpus} × {}, Linux {kernel}, commit {}, {} repetitions; {}. Called as `{}`.\n",
        cell(cpu.as_ref()),
        cell(peers.commit.as_ref()),
        peers.repetitions,
        versions.join(", "),
        peers.command.join(" ")
    )
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
