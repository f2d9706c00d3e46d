//! Runs the speed test as a process and reads the part of its output that is used here.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::programs;
use crate::results::Report;
use crate::table::{self, cell, number, percent};

/// The result file.
pub(crate) const FILE: &str = "speedtest.json";
/// The test that the claims and the histograms use.
pub(crate) const UPLOAD: &str = "tcp-up";
/// The daemon counts every value above 64 as 64.
const RANGES: [(&str, RangeInclusive<usize>); 6] = [
    ("1", 1..=1),
    ("2 to 9", 2..=9),
    ("10 to 20", 10..=20),
    ("21 to 40", 21..=40),
    ("41 to 50", 41..=50),
    ("more than 50", 51..=usize::MAX),
];

/// The parts of `convoy speedtest --json` that the page shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Speedtest {
    /// Present in a result file, absent from the program's output.
    pub(crate) origin: Option<Origin>,
    /// One run per test, in their order.
    pub(crate) runs: Vec<Run>,
    /// The greater peak memory of the two daemons.
    pub(crate) peak_memory_bytes: Option<u64>,
}

/// The figures of one test; `None` if one does not apply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) name: String,
    /// Payload received.
    pub(crate) gbps: Option<f64>,
    /// UDP: the highest rate with at most 1 % loss.
    pub(crate) kpps: Option<f64>,
    /// UDP: whether the generator, not loss, set the limit.
    pub(crate) generator_limited: Option<bool>,
    /// CPU seconds of both daemons per gigabyte of payload.
    pub(crate) cpu_s_per_gb: Option<f64>,
    // Of the sending daemon.
    pub(crate) packets_per_read: Option<f64>,
    pub(crate) segments_per_send: Option<f64>,
    pub(crate) histograms: Option<Histograms>,
    /// Median and 99th percentile of round trips during the load.
    pub(crate) ping_loaded_ms: Option<f64>,
    pub(crate) ping_loaded_p99_ms: Option<f64>,
}

/// How full the sending daemon's batches were.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Histograms {
    /// Packets per TUN read.
    pub(crate) packets_per_read: Histogram,
    /// Packets per batch handed to the event loop.
    pub(crate) packets_per_batch: Histogram,
    /// Datagrams per UDP send.
    pub(crate) segments_per_send: Histogram,
}

/// Entry `v` counts how often the value `v` was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Histogram(pub(crate) Vec<u64>);

impl Speedtest {
    /// Runs `program speedtest --json` with `options`.
    pub(crate) fn run(program: &Path, options: &str) -> anyhow::Result<Self> {
        let mut speedtest = Command::new(program);
        speedtest.args(["speedtest", "--json"]);
        speedtest.args(options.split_whitespace());
        let printed = programs::output(&mut speedtest)?;
        serde_json::from_str(&printed).context("read the output of speedtest --json")
    }

    /// How full batches were during an upload.
    pub(crate) fn upload(&self) -> Option<&Histograms> {
        self.of(UPLOAD).ok()?.histograms.as_ref()
    }

    /// The run of a test.
    pub(crate) fn of(&self, test: &str) -> anyhow::Result<&Run> {
        let run = self.runs.iter().find(|run| run.name == test);
        run.with_context(|| format!("the speed test did not run {test}"))
    }
}

impl Report for Speedtest {
    fn text(&self) -> String {
        let head =
            "test | Gbit/s | kpps | CPU s/GB | pkts/read | segs/send | ping p50, ms | p99, ms";
        let rows = self.runs.iter().map(|run| {
            vec![
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
        let origin = cell(self.origin.as_ref().map(Origin::paragraph));
        let histograms = self.upload().map(Histograms::text).unwrap_or_default();
        format!("{origin}\n{}{histograms}", table::markdown(head, rows))
    }
}

impl Histograms {
    /// Shares of reads, batches and sends by the number of packets in them.
    fn text(&self) -> String {
        let kinds = [
            &self.packets_per_read,
            &self.packets_per_batch,
            &self.segments_per_send,
        ];
        let mut rows: Vec<_> = RANGES
            .iter()
            .map(|(name, range)| {
                let shares = kinds.iter().map(|kind| percent(kind.share(range)));
                [(*name).to_owned()].into_iter().chain(shares).collect()
            })
            .collect();
        let medians = kinds.iter().map(|kind| cell(kind.median()));
        rows.push(["median".to_owned()].into_iter().chain(medians).collect());
        let head = "packets | TUN reads, % | batches, % | UDP sends, %";
        let table = table::markdown(head, rows);
        format!(
            "\nPackets per batch during `tcp-up`, for the sending daemon: its TUN reads, the batches from its reader \
             to its event loop, and its UDP sends.\n\n{table}"
        )
    }
}

impl Histogram {
    /// The share of reads, batches or sends whose number of packets is in `range`; empty ones do not count.
    pub(crate) fn share(&self, range: &RangeInclusive<usize>) -> Option<f64> {
        let within = self.filled().filter(|(value, _)| range.contains(value));
        let within: u64 = within.map(|(_, count)| count).sum();
        let all: u64 = self.filled().map(|(_, count)| count).sum();
        (all > 0).then(|| within as f64 / all as f64)
    }

    pub(crate) fn median(&self) -> Option<usize> {
        let mut upper = self.filled().map(|(value, _)| value);
        upper.find(|value| self.share(&(0..=*value)).is_some_and(|share| share >= 0.5))
    }

    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_the_median_leave_empty_batches_out() {
        let mut counts = vec![0; 65];
        (counts[0], counts[1], counts[20], counts[64]) = (1_000, 2, 5, 3);
        let histogram = Histogram(counts);
        assert_eq!(histogram.share(&(10..=20)), Some(0.5));
        assert_eq!(histogram.share(&(21..=usize::MAX)), Some(0.3));
        assert_eq!(
            (histogram.median(), Histogram(vec![7]).median()),
            (Some(20), None)
        );
    }
}
