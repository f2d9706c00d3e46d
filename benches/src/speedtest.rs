//! Runs the speed test as a process, and turns its JSON into rows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use convoy_rows::row::{Figure, Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use itertools::Itertools as _;
use serde_json::Value;

use crate::programs;

/// Figures of a test in the program's output, with their names and units here.
const FIGURES: [(&str, (&str, &str)); 11] = [
    ("gbps", ("", "Gbit/s")),
    ("kpps", ("", "kpps")),
    ("cpu_s_per_gb", ("", "CPU s/GB")),
    ("packets_per_read", ("", "packets/read")),
    ("segments_per_send", ("", "segments/send")),
    ("syscalls_per_gb", ("", "calls/GB")),
    ("loss", ("lost", "share")),
    ("reordered", ("reordered", "packets")),
    ("ping_idle_ms", ("ping, idle", "ms")),
    ("ping_loaded_ms", ("ping", "ms")),
    ("ping_loaded_p99_ms", ("ping, p99", "ms")),
];
/// Scenes of histograms: how often a batch of the sending daemon had this many packets.
pub(crate) const SEGMENTS_PER_SEND: &str = "segments_per_send";
const HISTOGRAMS: [&str; 3] = ["packets_per_read", "packets_per_batch", SEGMENTS_PER_SEND];
/// A contender of its own for the costs of each thread.
const THREADS: &str = "threads";
/// The test whose histograms are kept.
pub(crate) const UPLOAD: &str = "tcp-up";

pub(crate) const SECTION: Section = Section {
    title: "The tunnel",
    command: "speedtest-results",
    file: "speedtest.jsonl",
    tables: &[Table {
        heading: "",
        shows: |row| row.at.is_none() && row.contender != THREADS,
        corner: "test",
        line: |row| format!("{} {}", row.scene, row.contender),
        column: Row::label,
        has_spread: false,
    }],
    plots: &[],
    legend: "Medians over the rounds. CPU time is that of both daemons; batches are those of the sending one.",
};

/// Runs `program speedtest --json` with `options`.
pub(crate) fn output(program: &Path, options: &str) -> Result<Value> {
    let mut speedtest = Command::new(program);
    speedtest.args(["speedtest", "--json"]);
    speedtest.args(options.split_whitespace());
    let printed = programs::output(&mut speedtest)?;
    serde_json::from_str(&printed).context("read the output of speedtest --json")
}

/// Figures of the test `name`, with their units, and whether the generator set the limit.
pub(crate) fn figures(output: &Value, name: &str) -> Vec<(Figure<'static>, f64, bool)> {
    let runs = output["runs"].as_array().into_iter().flatten();
    let figures = runs.filter(|run| run["name"] == name).flat_map(|run| {
        let is_limited = run["generator_limited"] == true;
        let figures = FIGURES.iter();
        figures.filter_map(move |(key, figure)| Some((*figure, run[key].as_f64()?, is_limited)))
    });
    figures.collect()
}

/// Adds the rows of a whole output: of one configuration, or of two that were compared.
pub(crate) fn add(output: &Value, run: &mut Run) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for test in list(&output["runs"]) {
        let name = test["name"].as_str().unwrap_or_default();
        for (figure, value, is_limited) in figures(output, name) {
            run.push(Row::new(name, "convoy", figure, 0, value).limited(is_limited));
        }
        for end in ["sender", "receiver"] {
            for (thread, cost) in test["threads"][end].as_object().into_iter().flatten() {
                let (figure, value) = (format!("{end}'s {thread}"), number(cost));
                run.push(Row::new(name, THREADS, (&figure, "CPU s/GB"), 0, value));
            }
        }
        for scene in HISTOGRAMS.iter().filter(|_| name == UPLOAD) {
            for (size, count) in list(&test["histograms"][scene]).iter().enumerate() {
                let row = Row::new(scene, "convoy", ("", "times"), 0, number(count));
                run.push(row.at(size as f64));
            }
        }
    }
    let (bare, memory) = (&output["ceiling"]["gbps"], &output["peak_memory_bytes"]);
    let (bare, memory) = (number(bare), number(memory) / 1e6);
    run.push(Row::new("bare veth", "", ("", "Gbit/s"), 0, bare));
    run.push(Row::new("peak memory", "", ("", "MB"), 0, memory));
    let compare = &output["compare"];
    for test in list(&compare["tests"]) {
        let name = test["name"].as_str().unwrap_or_default();
        let figure = FIGURES.iter().find(|(key, _)| test["figure"] == *key);
        for (side, (_, figure)) in ["a", "b"].iter().cartesian_product(figure) {
            let contender = compare[side]["name"].as_str().unwrap_or_default();
            for (round, value) in (0..).zip(list(&test[side]["values"])) {
                run.push(Row::new(name, contender, *figure, round, number(&value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_figure_of_the_program_becomes_a_row() {
        let output = json!({
            "runs": [{"name": "tcp-up", "gbps": 6.5, "kpps": null, "generator_limited": true,
                "threads": {"sender": {"tunnel": 0.5}}, "histograms": {"packets_per_read": [0, 4]}}],
            "ceiling": {"gbps": 11.0}, "peak_memory_bytes": 9_000_000,
            "compare": {"a": {"name": "gso"}, "b": {"name": "no gso"}, "tests": [
                {"name": "tcp-up", "figure": "gbps", "a": {"values": [4.0, 5.0]}, "b": null}]},
        });
        let mut run = Run::new(Vec::new());
        add(&output, &mut run);
        let rows = run.rows.iter().map(|row| (&row.scene[..], row.value));
        let expected = [
            ("tcp-up", 6.5),
            ("tcp-up", 0.5),
            ("packets_per_read", 0.0),
            ("packets_per_read", 4.0),
            ("bare veth", 11.0),
            ("peak memory", 9.0),
            ("tcp-up", 4.0),
            ("tcp-up", 5.0),
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        assert!(run.rows[0].is_limited);
    }
}
