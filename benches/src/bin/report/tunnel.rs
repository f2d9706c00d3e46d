//! The speed test, and what batching is worth in it.

use std::path::Path;

use convoy_benches::{
    markdown::{self, cell, number},
    origin::Origin,
    results,
    speedtest::{Histograms, Run, Speedtest},
};
use convoy_lab::measure::Sample;
use serde::Deserialize;

use crate::{
    batches,
    section::{Section, rows, told},
};

pub(crate) const SPEEDTEST: &str = "speedtest.json";
pub(crate) const SHAPE: &str = "speedtest-shape.json";
pub(crate) const COMMAND: &str = "make speedtest-results";
pub(crate) const GSO: &str = "speedtest-gso.json";
pub(crate) const TUN_OFFLOAD: &str = "speedtest-tun-offload.json";
/// Each is a comparison of its own.
const CONTRASTS: [&str; 3] = [GSO, TUN_OFFLOAD, SHAPE];
/// The test that the claims and the histograms are about.
const UPLOAD: &str = "tcp-up";

/// What `convoy speedtest --compare … --json` prints, as far as it is shown, with its origin.
#[derive(Debug, Deserialize)]
pub(crate) struct Contrast {
    origin: Origin,
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
    a: Option<Sample>,
    b: Option<Sample>,
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
    let origins = contrasts.iter().map(|contrast| told(&contrast.origin));
    let origins: Vec<_> = origins.collect();
    Ok(text + "\n" + &markdown::table(&rows) + "\n" + &origins.join("\n"))
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
    let table = markdown::table(&rows(head, found.runs.iter().map(row)));
    let origin = found.origin.as_ref().map(told);
    let text = cell(origin) + "\n" + &table;
    let Some(histograms) = upload(found) else {
        return text;
    };
    text + "\nHow full batches are during `tcp-up`: of the TUN reads of the daemon that sends, of the batches \
            that go from its reader to its event loop, and of its UDP sends.\n\n"
        + &batches::table(histograms)
}

/// How full batches were during an upload.
pub(crate) fn upload(found: &Speedtest) -> Option<&Histograms> {
    found.of(UPLOAD).ok()?.histograms.as_ref()
}

/// The throughput of two configurations, measured in turns.
#[derive(Debug)]
pub(crate) struct Gain<'a> {
    /// Medians, in Gbit/s.
    pub(crate) with: f64,
    pub(crate) without: f64,
    /// Within each round.
    pub(crate) ratio: &'a Sample,
}

impl Contrast {
    /// What the first configuration carries, compared with the second.
    pub(crate) fn gain(&self) -> Option<Gain<'_>> {
        let mut tests = self.compare.tests.iter();
        let throughput = tests.find(|test| test.name == UPLOAD && test.figure == "gbps")?;
        Some(Gain {
            with: throughput.a.as_ref()?.median,
            without: throughput.b.as_ref()?.median,
            ratio: throughput.ratio.as_ref()?,
        })
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
