//! The speed test's comparisons of two configurations: the gain from batching.

use std::path::Path;

use convoy_lab::measure::Sample;
use serde::Deserialize;

use crate::origin::Origin;
use crate::results;
use crate::speedtest::UPLOAD;
use crate::table::{self, cell, number};

/// Their result files and their descriptions in the claims.
pub(super) const FILES: [(&str, &str); 3] = [
    (
        "speedtest-shape.json",
        "GSO and batches of 50, no TUN offload",
    ),
    ("speedtest-gso.json", "GSO, with TUN offload"),
    ("speedtest-tun-offload.json", "TUN offload, with GSO"),
];

/// The parts of `convoy speedtest --compare … --json` that the page shows, with their origin.
#[derive(Debug, Deserialize)]
pub(super) struct Contrast {
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

/// A table of all comparisons; empty if there are none.
pub(super) fn table(directory: &Path) -> anyhow::Result<String> {
    let (mut rows, mut origins) = (Vec::new(), Vec::new());
    for (file, _) in FILES {
        if let Some(Contrast { origin, compare }) = results::load(&directory.join(file))? {
            rows.extend(compare.rows());
            origins.push(origin.paragraph());
        }
    }
    let head = "interleaved | test | figure | ratio | range | rounds";
    Ok(match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}\n{}", table::markdown(head, rows), origins.join("\n")),
    })
}

impl Contrast {
    /// The throughput gain of the first configuration over the second.
    pub(super) fn gain(&self) -> Option<String> {
        let mut tests = self.compare.tests.iter();
        let throughput = tests.find(|test| test.name == UPLOAD && test.figure == "gbps")?;
        let (with, without) = (throughput.a.as_ref()?.median, throughput.b.as_ref()?.median);
        let ratio = throughput.ratio.as_ref()?;
        let [median, min, max] = [ratio.median, ratio.min, ratio.max].map(|it| (it - 1.0) * 100.0);
        Some(format!(
            "{median:+.0} % ({min:+.0} to {max:+.0} %), {without:.1} → {with:.1} Gbit/s"
        ))
    }
}

impl Comparison {
    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.tests.iter().map(|test| {
            let ratio = test.ratio.as_ref();
            let range = ratio.map(|ratio| format!("{:.2}–{:.2}", ratio.min, ratio.max));
            vec![
                format!("{} : {}", self.a.name, self.b.name),
                test.name.clone(),
                test.figure.clone(),
                number(ratio.map(|ratio| ratio.median), 2),
                cell(range),
                self.rounds.to_string(),
            ]
        })
    }
}
