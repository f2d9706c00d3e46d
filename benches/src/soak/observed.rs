//! Observations of a run, their rows and their plot.

use std::collections::BTreeMap;

use convoy_lab::traffic::LatencyReport;
use convoy_rows::plot::{EVENTS, Plot, Scale};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;

use super::events::{Event, Kind};
use super::streams::Stream;

/// A whole run. Times are seconds since the start of the load unless noted.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Start of the load in seconds since 1970-01-01 UTC.
    pub(super) began_unix_s: u64,
    /// Processors of the machine.
    pub(super) cpus: usize,
    /// Duration of the load.
    pub(super) secs: u64,
    /// The hub, which is under test, then the spokes.
    pub(super) daemons: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) streams: Vec<Stream>,
    pub(super) handshakes: Vec<Handshake>,
    /// The daemon that ended early, and the end of its log.
    pub(super) death: Option<String>,
    /// One sample per second.
    pub(super) samples: Vec<Sample>,
}

/// A handshake of the hub with a spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) spoke: u8,
    /// In seconds since 1970-01-01 UTC.
    pub(super) unix_s: u64,
}

/// One second. Lists have one entry per daemon, in the order of [`Observed::daemons`].
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    /// Mbit/s of verified TCP payload since the previous sample, at the hub and at the spokes.
    pub(super) up_mbps: f64,
    pub(super) down_mbps: f64,
    /// Indices in [`Observed::streams`] of streams that received nothing since the previous sample.
    pub(super) silent: Vec<usize>,
    /// Round trips of the probes sent in this second; `None` if an outage delayed them.
    pub(super) latency: Option<LatencyReport>,
    pub(super) rss_kib: Vec<u64>,
    pub(super) descriptors: Vec<u64>,
    pub(super) threads: Vec<u64>,
    /// CPU seconds since the daemon's start.
    pub(super) cpu_s: Vec<f64>,
    /// Number of CPUs that other programs used since the previous sample.
    pub(super) others_cpus: f64,
    /// Drops since the previous sample, by daemon and reason; reasons without drops are omitted.
    pub(super) drops: BTreeMap<String, BTreeMap<String, u64>>,
}

pub(crate) const SECTION: Section = Section {
    title: "Soak",
    command: "soak",
    file: "soak.jsonl",
    tables: &[],
    plots: &[Plot::new(
        "soak.svg",
        "Convoy soak: hub with 4 spokes, TCP both ways",
        ("time (s)", Scale::Linear),
        &[
            ("TCP goodput", "Mbit/s", Scale::Linear),
            ("round trip", "ms", Scale::Logarithmic),
            ("memory, VmRSS", "MiB", Scale::Linear),
            ("descriptors", "open", Scale::Linear),
            ("drops", "packets/s", Scale::Linear),
        ],
    )],
    legend: "",
};

impl Observed {
    /// Adds the rows of every second, and the events.
    pub(super) fn add(&self, run: &mut Run) {
        let mut descriptors = &Vec::new();
        for (second, sample) in (1..).zip(&self.samples) {
            let mut add = |scene: &str, contender: &str, unit: &str, value: f64| {
                run.push(Row::new(scene, contender, ("", unit), 0, value).at(sample.at_s));
            };
            add("TCP goodput", "spokes to hub", "Mbit/s", sample.up_mbps);
            add("TCP goodput", "hub to spokes", "Mbit/s", sample.down_mbps);
            if let Some(latency) = sample.latency {
                add(
                    "round trip",
                    "median",
                    "ms",
                    latency.median_ms.unwrap_or(f64::NAN),
                );
                add(
                    "round trip",
                    "p99",
                    "ms",
                    latency.p99_ms.unwrap_or(f64::NAN),
                );
            }
            for (number, daemon) in self.daemons.iter().enumerate() {
                let mib = sample.rss_kib[number] as f64 / 1_024.0;
                add("memory, VmRSS", daemon, "MiB", mib);
                // A line needs a point where it bends.
                let is_last = second == self.samples.len();
                if is_last || descriptors.get(number) != sample.descriptors.get(number) {
                    add(
                        "descriptors",
                        daemon,
                        "open",
                        sample.descriptors[number] as f64,
                    );
                }
            }
            descriptors = &sample.descriptors;
            let drops = sample.drops.values().flat_map(BTreeMap::values);
            add(
                "drops",
                "all daemons",
                "packets/s",
                drops.sum::<u64>() as f64,
            );
        }
        for event in &self.events {
            let kind = match event.kind {
                Kind::Port => "port change",
                Kind::Flap => "flap",
                Kind::Syncconf => "syncconf",
            };
            run.push(Row::new(EVENTS, kind, ("until", "s"), 0, event.until_s).at(event.from_s));
        }
    }
}
