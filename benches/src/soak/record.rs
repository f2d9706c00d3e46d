//! The result file: everything that was seen, and the verdicts; and its plot.

use std::collections::BTreeMap;

use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use super::events::{Event, Kind};
use super::flow::Stream;
use super::verdict::Verdict;
use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREEN, GREY, Line, Mark, ORANGE, PURPLE, Panel, Scale, VERMILION};

/// A whole run. All times are seconds since the load began, where they do not say otherwise.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) header: Header,
    pub(crate) verdicts: Vec<Verdict>,
    pub(super) events: Vec<Event>,
    pub(super) streams: Vec<Stream>,
    pub(super) handshakes: Vec<Handshake>,
    /// The daemon that ended early, and the end of its log.
    pub(super) death: Option<String>,
    /// One a second.
    pub(super) samples: Vec<Sample>,
}

/// The run that a result belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// How long the load lasted.
    pub(crate) secs: u64,
    /// Mbit/s of each stream; 0: as fast as TCP goes.
    pub(super) rate_mbps: f64,
    /// The daemon under test, and those of the spokes.
    pub(super) daemons: Vec<String>,
}

/// A handshake of the hub with a spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handshake {
    pub(super) spoke: u8,
    /// In seconds since 1970-01-01 UTC.
    pub(super) unix_s: u64,
}

/// The probes of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// None where nothing came back.
    pub(super) median_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// One second. Lists have one entry a daemon, in the order of [`Header::daemons`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    /// TCP payload that arrived at the hub as it was sent, since the former sample; and at the spokes.
    pub(super) up_mbps: f64,
    pub(super) down_mbps: f64,
    /// Of the probes that were sent in this second; none where an outage delayed them.
    pub(super) latency: Option<Latency>,
    pub(super) rss_kib: Vec<u64>,
    /// The most memory until now.
    pub(super) peak_kib: Vec<u64>,
    pub(super) descriptors: Vec<u64>,
    pub(super) threads: Vec<u64>,
    /// CPU seconds used since the daemon's start.
    pub(super) cpu_s: Vec<f64>,
    /// CPUs that other programs used since the former sample.
    pub(super) others_cpus: f64,
    /// Bytes of packets that the hub took in and gave out since its start.
    pub(super) hub_bytes: [u64; 2],
    /// By daemon and reason, since the former sample; only reasons that occurred.
    pub(super) drops: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A line: its name, its colour and its value in a sample.
type Drawn<'a> = (&'a str, RGBColor, &'a dyn Fn(&Sample) -> f64);

impl Record {
    /// Goodput, latency, memory, descriptors and drops over time, with marks for the events.
    pub(crate) fn figure(&self) -> Figure {
        let spokes = self.header.daemons.len() - 1;
        let rate = match self.header.rate_mbps {
            0.0 => "as fast as TCP goes".to_owned(),
            mbps => format!("{mbps} Mbit/s each"),
        };
        let latency = |sample: &Sample, of: fn(&Latency) -> Option<f64>| {
            sample.latency.as_ref().and_then(of).unwrap_or(f64::NAN)
        };
        let drops = |sample: &Sample| {
            sample
                .drops
                .values()
                .flat_map(BTreeMap::values)
                .sum::<u64>()
        };
        let panels = vec![
            self.panel(
                "TCP goodput (Mbit/s)",
                Scale::Linear,
                &[
                    ("spokes to hub", BLUE, &|sample| sample.up_mbps),
                    ("hub to spokes", VERMILION, &|sample| sample.down_mbps),
                ],
            ),
            self.panel(
                "round trip (ms)",
                Scale::Logarithmic,
                &[
                    ("p99", VERMILION, &|sample| {
                        latency(sample, |latency| latency.p99_ms)
                    }),
                    ("median", BLUE, &|sample| {
                        latency(sample, |latency| latency.median_ms)
                    }),
                ],
            ),
            self.by_daemon("memory, VmRSS (MiB)", |sample, daemon| {
                sample.rss_kib[daemon] as f64 / 1_024.0
            }),
            self.by_daemon("descriptors", |sample, daemon| {
                sample.descriptors[daemon] as f64
            }),
            self.panel(
                "drops (packets/s)",
                Scale::Linear,
                &[("all daemons", BLUE, &|sample| drops(sample) as f64)],
            ),
        ];
        let mark = |event: &Event| Mark {
            kind: event.kind.name(),
            colour: match event.kind {
                Kind::Port => GREEN,
                Kind::Flap => PURPLE,
                Kind::Syncconf => ORANGE,
            },
            from: event.from_s,
            until: event.until_s,
        };
        Figure {
            title: format!("Convoy soak: hub with {spokes} spokes, TCP both ways, {rate}"),
            subtitle: self.header.origin.line(),
            x_label: "time (s)".to_owned(),
            x_scale: Scale::Linear,
            panels,
            marks: self.events.iter().map(mark).collect(),
        }
    }

    fn panel(&self, y_label: &str, scale: Scale, lines: &[Drawn<'_>]) -> Panel {
        let line = |&(name, colour, value): &Drawn<'_>| Line {
            name: name.to_owned(),
            colour,
            points: self
                .samples
                .iter()
                .map(|sample| (sample.at_s, value(sample)))
                .collect(),
        };
        Panel {
            y_label: y_label.to_owned(),
            scale,
            lines: lines.iter().map(line).collect(),
        }
    }

    /// The hub's line is drawn last, above the others.
    fn by_daemon(&self, y_label: &str, value: fn(&Sample, usize) -> f64) -> Panel {
        let lines = (0..self.header.daemons.len()).rev().map(|daemon| {
            let (name, colour) = match daemon {
                0 => ("hub", BLUE),
                1 => ("spokes", GREY),
                _ => ("", GREY),
            };
            let of_daemon = |sample: &Sample| value(sample, daemon);
            self.panel(y_label, Scale::Linear, &[(name, colour, &of_daemon)])
                .lines
        });
        Panel {
            y_label: y_label.to_owned(),
            scale: Scale::Linear,
            lines: lines.flatten().collect(),
        }
    }
}
