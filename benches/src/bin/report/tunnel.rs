//! The speed test, and what batching is worth in it.

use std::path::Path;

use convoy_benches::{
    markdown, results,
    speedtest::{Run, Speedtest},
};
use convoy_lab::measure::Sample;
use serde::Deserialize;

use crate::section::{Section, cell, number, rows};

pub(crate) const SPEEDTEST: &str = "speedtest.json";
pub(crate) const SHAPE: &str = "speedtest-shape.json";
pub(crate) const COMMAND: &str = "make speedtest-results";
/// Each is a comparison of its own.
const CONTRASTS: [&str; 3] = ["speedtest-gso.json", "speedtest-tun-offload.json", SHAPE];

/// What `convoy speedtest --compare … --json` prints, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Contrast {
    compare: Comparison,
}

#[derive(Debug, Deserialize)]
struct Comparison {
    rounds: u32,
    a: Side,
    b: Side,
    tests: Vec<Compared>,
}

#[derive(Debug, Deserialize)]
struct Side {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Compared {
    name: String,
    figure: String,
    ratio: Option<Sample>,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "The tunnel",
        command: COMMAND,
        file: SPEEDTEST,
    };
    let mut contrasts = Vec::new();
    for file in CONTRASTS {
        contrasts.extend(results::load_if_there::<Contrast>(&results.join(file))?);
    }
    let text = section.of(results, speedtest)?;
    if contrasts.is_empty() {
        return Ok(text);
    }
    let head = [
        "in turns",
        "test",
        "figure",
        "ratio",
        "lowest to highest",
        "rounds",
    ];
    let rows = rows(
        head,
        contrasts
            .iter()
            .flat_map(|contrast| contrast.compare.rows()),
    );
    Ok(text + "\n" + &markdown::table(&rows))
}

fn speedtest(found: &Speedtest) -> String {
    let head = [
        "test",
        "Gbit/s",
        "kpps",
        "CPU s/GB",
        "pkts/read",
        "segs/send",
        "ping, ms",
    ];
    let row = |run: &Run| {
        [
            run.name.clone(),
            number(run.gbps, 2),
            number(run.kpps, 1),
            number(run.cpu_s_per_gb, 2),
            number(run.packets_per_read, 1),
            number(run.segments_per_send, 1),
            number(run.ping_loaded_ms, 3),
        ]
    };
    let host = &found.host;
    format!(
        "convoy {}, {} × {}, Linux {}.\n\n{}",
        found.version,
        host.cpus,
        cell(host.cpu.as_ref()),
        host.kernel,
        markdown::table(&rows(head, found.runs.iter().map(row)))
    )
}

impl Contrast {
    /// The ratio of the first configuration's throughput to the second's.
    pub(crate) fn throughput(&self) -> Option<&Sample> {
        let mut tests = self.compare.tests.iter();
        let throughput = tests.find(|test| test.name == "tcp-up" && test.figure == "gbps")?;
        throughput.ratio.as_ref()
    }
}

impl Comparison {
    fn rows(&self) -> impl Iterator<Item = [String; 6]> {
        self.tests.iter().map(|test| {
            let ratio = test.ratio.as_ref();
            [
                format!("{} : {}", self.a.name, self.b.name),
                test.name.clone(),
                test.figure.clone(),
                number(ratio.map(|ratio| ratio.median), 2),
                cell(ratio.map(|ratio| format!("{:.2}–{:.2}", ratio.min, ratio.max))),
                self.rounds.to_string(),
            ]
        })
    }
}
