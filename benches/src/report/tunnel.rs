//! The speed test, and the gain by batching in it.

use std::ops::RangeInclusive;

use convoy_lab::measure::Sample;
use serde::Deserialize;

use super::{Page, table};
use crate::origin::Origin;
use crate::speedtest::{Histograms, Speedtest};
use crate::table::{cell, number};

pub(super) const FILE: &str = "speedtest.json";
/// Comparisons of two configurations: their file, and their words in the claims.
pub(super) const CONTRASTS: [(&str, &str); 3] = [
    (
        "speedtest-shape.json",
        "GSO and batches of 50, no TUN offload",
    ),
    ("speedtest-gso.json", "GSO, with TUN offload"),
    ("speedtest-tun-offload.json", "TUN offload, with GSO"),
];
/// The test of the claims and of the histograms.
const UPLOAD: &str = "tcp-up";
/// The daemon counts everything above 64 as 64.
const RANGES: [(&str, RangeInclusive<usize>); 6] = [
    ("1", 1..=1),
    ("2 to 9", 2..=9),
    ("10 to 20", 10..=20),
    ("21 to 40", 21..=40),
    ("41 to 50", 41..=50),
    ("more than 50", 51..=usize::MAX),
];

/// The output of `convoy speedtest --compare … --json`, as far as it is shown, with its origin.
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

pub(super) fn section(page: &mut Page) -> anyhow::Result<()> {
    let mut contrasts: Vec<Contrast> = Vec::new();
    for (file, _) in CONTRASTS {
        contrasts.extend(page.load(file)?);
    }
    page.section(
        "The tunnel",
        "make speedtest-results",
        FILE,
        |_, found: &Speedtest| Ok(speedtest(found)),
    )?;
    if !contrasts.is_empty() {
        let head = [
            "interleaved",
            "test",
            "figure",
            "ratio",
            "lowest to highest",
            "rounds",
        ];
        let rows = contrasts
            .iter()
            .flat_map(|contrast| contrast.compare.rows());
        let origins: Vec<_> = contrasts
            .iter()
            .map(|contrast| contrast.origin.paragraph())
            .collect();
        page.text += &format!("\n{}\n{}", table(head, rows), origins.join("\n"));
    }
    Ok(())
}

fn speedtest(found: &Speedtest) -> String {
    let head = [
        "test",
        "Gbit/s",
        "kpps",
        "CPU s/GB",
        "pkts/read",
        "segs/send",
        "ping p50, ms",
        "p99, ms",
    ];
    let rows = found.runs.iter().map(|run| {
        [
            run.name.clone(),
            number(run.gbps, 2),
            number(run.kpps, 1),
            number(run.cpu_s_per_gb, 2),
            number(run.packets_per_read, 1),
            number(run.segments_per_send, 1),
            number(run.ping_loaded_ms, 3),
            number(run.ping_loaded_p99_ms, 3),
        ]
    });
    let origin = found.origin.as_ref().map(Origin::paragraph);
    let text = cell(origin) + "\n" + &table(head, rows);
    let Some(histograms) = upload(found) else {
        return text;
    };
    text + "\nHow full batches are during `tcp-up`: TUN reads of the daemon that sends, the batches that go from \
            its reader to its event loop, and its UDP sends.\n\n"
        + &batches(histograms)
}

/// How full batches were during an upload.
pub(super) fn upload(found: &Speedtest) -> Option<&Histograms> {
    found.of(UPLOAD).ok()?.histograms.as_ref()
}

/// Shares of reads, batches and sends by the number of packets in them.
fn batches(histograms: &Histograms) -> String {
    let Histograms {
        packets_per_read,
        packets_per_batch,
        segments_per_send,
    } = histograms;
    let kinds = [packets_per_read, packets_per_batch, segments_per_send];
    let ranges = RANGES.map(|(name, range)| {
        let [a, b, c] = kinds.map(|kind| number(kind.share(&range).map(|share| share * 100.0), 1));
        [name.to_owned(), a, b, c]
    });
    let [a, b, c] = kinds.map(|kind| cell(kind.median()));
    let medians = ["the median".to_owned(), a, b, c];
    let head = ["packets", "TUN reads, %", "batches, %", "UDP sends, %"];
    table(head, ranges.into_iter().chain([medians]))
}

impl Contrast {
    /// The throughput of the first configuration, of the second, in Gbit/s, and their ratio in each round.
    pub(super) fn gain(&self) -> Option<(f64, f64, &Sample)> {
        let mut tests = self.compare.tests.iter();
        let throughput = tests.find(|test| test.name == UPLOAD && test.figure == "gbps")?;
        let [a, b] = [throughput.a.as_ref()?, throughput.b.as_ref()?];
        Some((a.median, b.median, throughput.ratio.as_ref()?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_packets_is_in_one_range() {
        for packets in 1..=64 {
            let hits = RANGES.iter().filter(|(_, range)| range.contains(&packets));
            assert_eq!(hits.count(), 1, "{packets}");
        }
    }
}
