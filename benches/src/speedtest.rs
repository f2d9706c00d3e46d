//! The speed test as a process, and what it prints.

mod histograms;

use std::{ffi::OsStr, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use convoy_lab::measure::Host;
use serde::Deserialize;

pub use histograms::{Histogram, Histograms};

use crate::origin::Origin;

/// What `convoy speedtest --json` prints, as far as it is used here.
#[derive(Debug, Deserialize)]
pub struct Speedtest {
    /// How it came about: in a result file, not as printed.
    pub origin: Option<Origin>,
    /// Of the program.
    pub version: String,
    /// Where it was measured.
    pub host: Host,
    /// A run for each test, in their order.
    pub runs: Vec<Run>,
    /// The most memory that one of the two daemons had.
    pub peak_memory_bytes: Option<u64>,
}

/// The figures of one test; none where they do not apply.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// As the test was asked for.
    pub name: String,
    /// Payload that arrived.
    pub gbps: Option<f64>,
    /// UDP: the highest rate with at most 1 % loss.
    pub kpps: Option<f64>,
    /// UDP: whether the generator, not loss, set the limit.
    pub generator_limited: Option<bool>,
    /// CPU seconds of both daemons for a gigabyte of payload.
    pub cpu_s_per_gb: Option<f64>,
    /// Of the daemon that sends.
    pub packets_per_read: Option<f64>,
    /// Of the daemon that sends.
    pub segments_per_send: Option<f64>,
    /// Median round trip under the test's load.
    pub ping_loaded_ms: Option<f64>,
    /// Of the daemon that sends.
    pub histograms: Option<Histograms>,
}

impl Speedtest {
    /// Runs `program speedtest --json` with these arguments, and reads what it prints.
    ///
    /// # Errors
    /// When it cannot be started, fails, or prints something else.
    pub fn run(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<Self> {
        let output = Command::new(program)
            .args(["speedtest", "--json"])
            .args(arguments)
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        let reason = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "speedtest: {}", reason.trim());
        Self::read(&output.stdout)
    }

    /// The run of a test.
    ///
    /// # Errors
    /// When the test was not run.
    pub fn of(&self, test: &str) -> anyhow::Result<&Run> {
        let mut runs = self.runs.iter();
        runs.find(|run| run.name == test)
            .with_context(|| format!("the speed test has not run {test}"))
    }

    fn read(printed: &[u8]) -> anyhow::Result<Self> {
        serde_json::from_slice(printed).context("what speedtest --json printed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{"version": "0.1.0", "host": {"kernel": "6", "cpu": null, "cpus": 2,
        "memory_mib": null, "root": true}, "settings": {"mtu": 1420}, "ceiling": {"gbps": 40.0},
        "runs": [
            {"name": "tcp-1", "gbps": 5.5, "kpps": null, "loss": null, "cpu_s_per_gb": 2.5},
            {"name": "udp-64", "gbps": 0.25, "kpps": 480.0, "generator_limited": false}],
        "peak_memory_bytes": 12000000}"#;

    #[test]
    fn what_the_speed_test_prints_is_read_by_the_names_of_its_tests() {
        let found = Speedtest::read(PRINTED.as_bytes()).unwrap();
        assert_eq!(found.peak_memory_bytes, Some(12_000_000));
        let tcp = found.of("tcp-1").unwrap();
        assert_eq!((tcp.gbps, tcp.kpps), (Some(5.5), None));
        assert_eq!(found.of("udp-64").unwrap().kpps, Some(480.0));
        assert!(found.of("udp-65").is_err());
        assert!(Speedtest::read(b"idle latency").is_err());
    }

    #[test]
    fn a_speed_test_that_fails_says_why() {
        let shell = |script| Speedtest::run(Path::new("/bin/sh"), ["-c", script]);
        // `sh speedtest` looks for a script of that name.
        let refusal = shell("").unwrap_err().to_string();
        assert!(refusal.starts_with("speedtest: "), "{refusal}");
        let missing = Speedtest::run(Path::new("/nowhere/convoy"), [""]).unwrap_err();
        assert_eq!(missing.to_string(), "start /nowhere/convoy");
    }
}
