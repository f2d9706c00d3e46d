//! The result file with all observations and verdicts, and its plot.

use std::collections::BTreeMap;

use convoy_lab::traffic::LatencyReport;
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use super::events::{Event, Kind};
use super::streams::Stream;
use super::verdict::Verdict;
use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREEN, GREY, Line, Mark, ORANGE, PURPLE, Panel, VERMILION};
use crate::results::{Picture, Report};

/// A whole run. Times are seconds since the start of the load unless noted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(super) origin: Origin,
    /// Duration of the load.
    pub(super) secs: u64,
    /// Mbit/s of each stream; 0: unlimited.
    pub(super) rate_mbps: f64,
    /// The hub, which is under test, then the spokes.
    pub(super) daemons: Vec<String>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) events: Vec<Event>,
    pub(super) streams: Vec<Stream>,
    pub(super) handshakes: Vec<Handshake>,
    /// The daemon that ended early, and the end of its log.
    pub(super) death: Option<String>,
    /// One sample per second.
    pub(super) samples: Vec<Sample>,
}

/// A handshake of the hub with a spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handshake {
    pub(super) spoke: u8,
    /// In seconds since 1970-01-01 UTC.
    pub(super) unix_s: u64,
}

/// One second. Lists have one entry per daemon, in the order of [`Record::daemons`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    /// Mbit/s of verified TCP payload since the previous sample, at the hub and at the spokes.
    pub(super) up_mbps: f64,
    pub(super) down_mbps: f64,
    /// Indices in [`Record::streams`] of streams that received nothing since the previous sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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

impl Report for Record {
    fn text(&self) -> String {
        let verdicts = self.verdicts.iter().map(Verdict::to_string);
        let verdicts = verdicts.collect::<String>();
        format!("{} s. {}\n{verdicts}", self.secs, self.origin.paragraph())
    }

    fn pictures(&self) -> anyhow::Result<Vec<Picture>> {
        Ok(vec![Picture::of("soak.svg", &self.figure())?])
    }
}

impl Record {
    /// Goodput, latency, memory, descriptors and drops over time, with the events marked.
    fn figure(&self) -> Figure {
        let rate = match self.rate_mbps {
            0.0 => "as fast as TCP goes".to_owned(),
            mbps => format!("{mbps} Mbit/s each"),
        };
        let ms = |name, colour, of: fn(&LatencyReport) -> Option<f64>| {
            let of = |sample: &Sample| sample.latency.as_ref().and_then(of).unwrap_or(f64::NAN);
            self.line(name, colour, of)
        };
        let drops = self.line("all daemons", BLUE, |sample| {
            let counts = sample.drops.values().flat_map(BTreeMap::values);
            counts.sum::<u64>() as f64
        });
        let goodput = vec![
            self.line("spokes to hub", BLUE, |sample| sample.up_mbps),
            self.line("hub to spokes", VERMILION, |sample| sample.down_mbps),
        ];
        let round_trips = vec![
            ms("p99", VERMILION, |it| it.p99_ms),
            ms("median", BLUE, |it| it.median_ms),
        ];
        let memory = self.by_daemon(|sample, daemon| sample.rss_kib[daemon] as f64 / 1_024.0);
        let descriptors = self.by_daemon(|sample, daemon| sample.descriptors[daemon] as f64);
        let spokes = self.daemons.len() - 1;
        Figure {
            title: format!("Convoy soak: hub with {spokes} spokes, TCP both ways, {rate}"),
            subtitle: self.origin.line(),
            x_label: "time (s)".to_owned(),
            panels: vec![
                Panel::linear("TCP goodput (Mbit/s)", goodput),
                Panel::logarithmic("round trip (ms)", round_trips),
                Panel::linear("memory, VmRSS (MiB)", memory),
                Panel::linear("descriptors", descriptors),
                Panel::linear("drops (packets/s)", vec![drops]),
            ],
            marks: self.events.iter().map(mark).collect(),
            ..Figure::default()
        }
    }

    fn line(&self, name: &str, colour: RGBColor, value: impl Fn(&Sample) -> f64) -> Line {
        let samples = self.samples.iter();
        Line::new(name, colour, samples.map(|it| (it.at_s, value(it))))
    }

    /// Draws the hub's line last, on top of the others.
    fn by_daemon(&self, value: impl Fn(&Sample, usize) -> f64) -> Vec<Line> {
        let lines = (0..self.daemons.len()).rev().map(|daemon| {
            let (name, colour) = match daemon {
                0 => ("hub", BLUE),
                1 => ("spokes", GREY),
                _ => ("", GREY),
            };
            self.line(name, colour, |sample| value(sample, daemon))
        });
        lines.collect()
    }
}

fn mark(event: &Event) -> Mark {
    let (kind, colour) = match event.kind {
        Kind::Port => ("port change", GREEN),
        Kind::Flap => ("flap", PURPLE),
        Kind::Syncconf => ("syncconf", ORANGE),
    };
    Mark {
        kind,
        colour,
        span: event.from_s..event.until_s,
    }
}
