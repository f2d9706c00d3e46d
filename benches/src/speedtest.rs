//! The speed test as a process, and the part of its output that is used here.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::origin::Origin;

/// The output of `convoy speedtest --json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Speedtest {
    /// In a result file, not as printed.
    pub(crate) origin: Option<Origin>,
    /// A run for each test, in their order.
    pub(crate) runs: Vec<Run>,
    /// The most memory that one of the two daemons had.
    pub(crate) peak_memory_bytes: Option<u64>,
}

/// The figures of one test; none where they do not apply.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Run {
    pub(crate) name: String,
    /// Payload that arrived.
    pub(crate) gbps: Option<f64>,
    /// UDP: the highest rate with at most 1 % loss.
    pub(crate) kpps: Option<f64>,
    /// UDP: whether the generator, not loss, set the limit.
    pub(crate) generator_limited: Option<bool>,
    /// CPU seconds of both daemons for a gigabyte of payload.
    pub(crate) cpu_s_per_gb: Option<f64>,
    // Of the daemon that sends.
    pub(crate) packets_per_read: Option<f64>,
    pub(crate) segments_per_send: Option<f64>,
    pub(crate) histograms: Option<Histograms>,
    /// Median and 99th percentile of round trips beside the load.
    pub(crate) ping_loaded_ms: Option<f64>,
    pub(crate) ping_loaded_p99_ms: Option<f64>,
}

/// How full batches were, of the daemon that sends.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Histograms {
    /// Packets in a TUN read.
    pub(crate) packets_per_read: Histogram,
    /// Packets in a batch that went to the event loop.
    pub(crate) packets_per_batch: Histogram,
    /// Datagrams in a UDP send.
    pub(crate) segments_per_send: Histogram,
}

/// Entry `v` is how often the value `v` was seen.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Histogram(pub(crate) Vec<u64>);

impl Speedtest {
    /// Runs `program speedtest --json` with these arguments.
    pub(crate) fn run(program: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let output = Command::new(program)
            .args(["speedtest", "--json"])
            .args(arguments)
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        let reason = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "speedtest: {}", reason.trim());
        serde_json::from_slice(&output.stdout).context("read the output of speedtest --json")
    }

    /// The run of a test.
    pub(crate) fn of(&self, test: &str) -> anyhow::Result<&Run> {
        let run = self.runs.iter().find(|run| run.name == test);
        run.with_context(|| format!("the speed test has not run {test}"))
    }
}

impl Histogram {
    /// The share of reads, batches or sends with a number of packets in `range`; empty ones do not count.
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

    #[test]
    fn a_speed_test_that_fails_says_why() {
        let refusal = Speedtest::run(Path::new("/bin/sh"), &[])
            .unwrap_err()
            .to_string();
        // `sh speedtest` looks for a script of that name.
        assert!(refusal.starts_with("speedtest: "), "{refusal}");
    }
}
