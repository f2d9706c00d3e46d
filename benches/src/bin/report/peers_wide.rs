//! Convoy against other programs: the wide set, and VPNs of another protocol.

use std::path::Path;

use convoy_benches::markdown;
use convoy_lab::measure::Sample;
use serde::Deserialize;

use crate::{
    measured::Measured,
    section::{Section, cell, number},
};

/// `peers-wide.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Wide {
    #[serde(flatten)]
    measured: Measured,
    absent: Vec<Absent>,
    tables: Vec<Table>,
    curves: Vec<Curve>,
}

#[derive(Debug, Deserialize)]
struct Absent {
    name: String,
    why: String,
}

#[derive(Debug, Deserialize)]
struct Table {
    title: String,
    contestants: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    title: String,
    decimals: usize,
    bare_veth: Option<f64>,
    cells: Vec<Cell>,
    best_other: Option<String>,
    ratio: Option<Sample>,
}

#[derive(Debug, Deserialize)]
struct Cell {
    median: Option<f64>,
    generator_limited: bool,
}

#[derive(Debug, Deserialize)]
struct Curve {
    payload: usize,
    points: Vec<(f64, f64)>,
}

const LEGEND: &str = "
Medians; the ratio is Convoy's figure to that of the best other within each repetition: its median, the
least and the most. CPU time and system calls are of both daemons for a gigabyte that arrived, memory is
the peak of the greater daemon in that run; requests and answers are 32 bytes, one in flight. `*`: the
generator set the limit in a repetition.
";

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Against other programs, more widely",
        command: "make bench-peers",
        file: "peers-wide.json",
    };
    section.of(results, |wide: &Wide| {
        let tables = wide.tables.iter().map(|table| {
            let rows = markdown::table(&rows(table));
            format!("\n### {}\n\n{rows}", table.title)
        });
        wide.measured.told() + &tables.collect::<String>() + &absent(wide) + LEGEND + &plots(wide)
    })
}

fn rows(table: &Table) -> Vec<Vec<String>> {
    let mut head = vec![String::new(), "bare veth".to_owned()];
    head.extend(table.contestants.iter().cloned());
    head.extend(["best other", "ratio", "least–most"].map(str::to_owned));
    [head]
        .into_iter()
        .chain(table.rows.iter().map(row))
        .collect()
}

fn row(row: &Row) -> Vec<String> {
    let figure = |cell: &Cell| {
        let mark = if cell.generator_limited { " \\*" } else { "" };
        number(cell.median, row.decimals) + mark
    };
    let ratio = row.ratio.as_ref();
    let mut cells = vec![row.title.clone(), number(row.bare_veth, row.decimals)];
    cells.extend(row.cells.iter().map(figure));
    cells.extend([
        cell(row.best_other.as_ref()),
        number(ratio.map(|ratio| ratio.median), 2),
        cell(ratio.map(|ratio| format!("{:.2}–{:.2}", ratio.min, ratio.max))),
    ]);
    cells
}

fn absent(wide: &Wide) -> String {
    let told = |one: &Absent| format!("\n**Not measured: {}**: {}\n", one.name, one.why);
    wide.absent.iter().map(told).collect()
}

/// One for each size of which anything was sent; the suite names the files.
fn plots(wide: &Wide) -> String {
    let drawn = wide.curves.iter().filter(|curve| !curve.points.is_empty());
    let mut payloads: Vec<_> = drawn.map(|curve| curve.payload).collect();
    payloads.dedup();
    let plot = |payload| {
        format!("\n![UDP, {payload} bytes: what arrives](results/peers-wide-udp-{payload}.svg)\n")
    };
    payloads.into_iter().map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::HEAD;

    const TABLE: &str = r#"{"title": "Ordinary VPNs", "contestants": ["convoy", "openvpn"],
        "rows": [{"row": "tcp-up-gbps", "title": "TCP up, Gbit/s", "decimals": 2, "bare_veth": 20.1,
            "cells": [{"median": 5.2, "generator_limited": false, "values": [5.2]},
                {"median": null, "generator_limited": true, "values": [null]}],
            "best_other": "openvpn",
            "ratio": {"median": 8.0, "min": 7.5, "max": 9.25, "values": [8.0, 7.5, 9.25]}}]}"#;

    #[test]
    fn a_row_of_the_suite_is_a_row_of_the_table() {
        let rows = rows(&serde_json::from_str(TABLE).unwrap());
        let expected = [
            "TCP up, Gbit/s",
            "20.10",
            "5.20",
            "– \\*",
            "openvpn",
            "8.00",
            "7.50–9.25",
        ];
        assert_eq!(rows[1], expected);
        assert_eq!(rows[0].len(), rows[1].len());
        assert_eq!(rows[0][2..4], ["convoy", "openvpn"]);
    }

    #[test]
    fn every_size_that_was_sent_has_its_plot_once() {
        let curve = |payload, points| Curve { payload, points };
        let wide = Wide {
            measured: serde_json::from_str(&format!("{{{HEAD}}}")).unwrap(),
            absent: vec![Absent {
                name: "openvpn".to_owned(),
                why: "not installed".to_owned(),
            }],
            tables: Vec::new(),
            curves: vec![
                curve(64, vec![(25.0, 25.0)]),
                curve(64, vec![(25.0, 24.0)]),
                curve(512, Vec::new()),
                curve(1_200, vec![(25.0, 20.0)]),
            ],
        };
        let plots = plots(&wide);
        assert_eq!(plots.matches("udp-64.svg").count(), 1);
        assert!(!plots.contains("udp-512") && plots.contains("udp-1200.svg"));
        assert!(absent(&wide).contains("**Not measured: openvpn**: not installed"));
    }
}
