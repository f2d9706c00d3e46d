//! The result file, its tables and its plots.

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use super::busy::{self, Busy};
use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREY, Line, Panel, Scale, VERMILION};
use crate::results::{Picture, Report};
use crate::speedtest::{Run, Speedtest};
use crate::table::{self, cell, spread};

const LEGEND: &str = "Medians, with the lowest and highest value of the rounds in brackets; \"of\" gives \
    the number of rounds with a figure if some have none. CPU time is that of both daemons. `*`: the generator, not \
    the tunnel, set the limit in at least one round.";
/// WireGuard's usual MTU over Ethernet.
pub(super) const MTU: u32 = 1_420;

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(super) origin: Origin,
    /// Every round measures every point once.
    pub(super) rounds: u32,
    /// Seconds that count in a test.
    pub(super) secs: u32,
    /// One series per point.
    pub(super) series: Vec<Series>,
    /// Absent from results of older versions.
    #[serde(default)]
    pub(super) busy: Vec<Busy>,
}

/// One test in one tunnel. A round has no value if a figure does not apply, and no rate if every rate lost more than
/// 1 %.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Series {
    mtu: u32,
    /// Peers of each daemon; all but one are idle.
    peers: u32,
    /// The test's name in the speed test.
    test: String,
    gbps: Option<Sample>,
    kpps: Option<Sample>,
    cpu_s_per_gb: Option<Sample>,
    /// The greater peak memory of the two daemons, after all tests in this tunnel.
    peak_memory_bytes: Option<Sample>,
    /// UDP: the rounds in which the generator, not loss, set the limit.
    generator_limited: usize,
}

/// A figure: its name with the unit, the number of decimals, and its values over the rounds.
type Quantity = (&'static str, usize, fn(&Series) -> Option<Sample>);

const GBPS: Quantity = ("Gbit/s", 2, |series| series.gbps.clone());
const KPPS: Quantity = ("kpps", 1, |series| series.kpps.clone());
const CPU: Quantity = ("CPU s/GB", 2, |series| series.cpu_s_per_gb.clone());
const CPU_PER_PACKET: Quantity = ("CPU ns/packet", 0, |series| {
    // Seconds per 10⁹ bytes are nanoseconds per byte.
    scaled(series.cpu_s_per_gb.as_ref()?, series.number("udp-")?.into())
});
const MEMORY: Quantity = ("peak MiB", 1, |series| {
    scaled(series.peak_memory_bytes.as_ref()?, 1.0 / 1_048_576.0)
});

/// A parameter with which cost grows.
struct Axis {
    title: &'static str,
    /// Includes the unit.
    label: &'static str,
    /// File name of the plot.
    plot: &'static str,
    scale: Scale,
    quantities: &'static [Quantity],
    /// Position of a series on the axis; `None` if the series varies something else.
    place: fn(&Series) -> Option<u32>,
    /// One line per MTU; a single line if there are none.
    mtus: &'static [u32],
}

/// All axes, in display order.
const AXES: [Axis; 4] = [
    Axis {
        title: "By packet size",
        label: "bytes of UDP payload",
        plot: "growth_by_packet_size.svg",
        // Linear: cost has a part per packet and a part per byte.
        scale: Scale::Linear,
        quantities: &[KPPS, GBPS, CPU, CPU_PER_PACKET],
        place: |series| series.number("udp-"),
        mtus: &[MTU, 8_920],
    },
    Axis {
        title: "By flows",
        label: "TCP streams",
        plot: "growth_by_flows.svg",
        scale: Scale::Logarithmic,
        quantities: &[GBPS, CPU],
        place: |series| {
            let is_usual = series.mtu == MTU && series.peers == 1;
            series.number("tcp-").filter(|_| is_usual)
        },
        mtus: &[],
    },
    Axis {
        title: "By peers",
        label: "peers, all but one idle",
        plot: "growth_by_peers.svg",
        scale: Scale::Logarithmic,
        quantities: &[GBPS, CPU, MEMORY],
        place: |it| (it.mtu == MTU && it.test == "tcp-1").then_some(it.peers),
        mtus: &[],
    },
    Axis {
        title: "By MTU",
        label: "MTU in bytes",
        plot: "growth_by_mtu.svg",
        scale: Scale::Linear,
        quantities: &[GBPS, CPU],
        place: |it| (it.peers == 1 && it.test == "tcp-1").then_some(it.mtu),
        mtus: &[],
    },
];

impl Series {
    /// Collects the series of `test` in a tunnel; each of `rounds` has a run of it.
    pub(super) fn of(
        mtu: u32,
        peers: u32,
        test: &str,
        rounds: &[Speedtest],
    ) -> anyhow::Result<Self> {
        let runs = rounds.iter().map(|round| round.of(test));
        let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
        let of = |of: fn(&Run) -> Option<f64>| {
            let values = runs.iter().filter_map(|run| of(run));
            Sample::of(values.collect())
        };
        let memory = rounds.iter().filter_map(|round| round.peak_memory_bytes);
        let limited = runs.iter().filter_map(|run| run.generator_limited);
        Ok(Self {
            mtu,
            peers,
            test: test.to_owned(),
            gbps: of(|run| run.gbps),
            kpps: of(|run| run.kpps),
            cpu_s_per_gb: of(|run| run.cpu_s_per_gb),
            peak_memory_bytes: Sample::of(memory.map(|bytes| bytes as f64).collect()),
            generator_limited: limited.filter(|limited| *limited).count(),
        })
    }

    /// Parses the bytes of `udp-…` and the streams of `tcp-…`.
    fn number(&self, kind: &str) -> Option<u32> {
        self.test.strip_prefix(kind)?.parse().ok()
    }
}

fn scaled(sample: &Sample, factor: f64) -> Option<Sample> {
    Sample::of(sample.values.iter().map(|value| value * factor).collect())
}

impl Report for Record {
    fn text(&self) -> String {
        let (origin, rounds, secs) = (self.origin.paragraph(), self.rounds, self.secs);
        let tables: String = AXES.iter().map(|axis| self.table(axis)).collect();
        format!(
            "{origin}\n{rounds} interleaved rounds, {secs} s per test. {LEGEND}\n{tables}{}",
            busy::table(&self.busy)
        )
    }

    fn pictures(&self) -> anyhow::Result<Vec<Picture>> {
        let figures = AXES.iter().map(|axis| (axis.plot, self.figure(axis)));
        figures
            .map(|(file, figure)| Picture::of(file, &figure))
            .collect()
    }
}

impl Record {
    /// The series on an axis, in ascending order.
    fn along(&self, axis: &Axis) -> Vec<(u32, &Series)> {
        let series = self.series.iter();
        let placed = series.filter_map(|series| Some(((axis.place)(series)?, series)));
        let mut along: Vec<_> = placed.collect();
        along.sort_by_key(|&(place, _)| place);
        along
    }

    /// The figures along an axis: one row per position.
    fn table(&self, axis: &Axis) -> String {
        let names = axis.quantities.iter().map(|(name, _, _)| *name);
        let head: Vec<_> = [axis.label].into_iter().chain(names).collect();
        let rows = self.along(axis).into_iter().map(|(place, series)| {
            let mut place = place.to_string();
            if series.generator_limited > 0 {
                place += "*";
            }
            if !axis.mtus.is_empty() && series.mtu != MTU {
                place += &format!(" (MTU {})", series.mtu);
            }
            let figures = axis.quantities.iter().map(|it| self.cell(series, it));
            [place].into_iter().chain(figures).collect()
        });
        let table = table::markdown(&head.join(" | "), rows);
        format!("\n### {}\n\n{table}", axis.title)
    }

    fn cell(&self, series: &Series, (_, digits, of): &Quantity) -> String {
        cell(of(series).map(|sample| {
            let shown = spread(&sample, *digits);
            match sample.values.len() {
                all if all == self.rounds as usize => shown,
                some => shown.replace(')', &format!("; {some} of {})", self.rounds)),
            }
        }))
    }

    /// One panel per quantity along an axis.
    fn figure(&self, axis: &Axis) -> Figure {
        let along = self.along(axis);
        let panel = |&(name, _, of): &Quantity| {
            let line = |name: &str, mtu: Option<u32>, colour, value: fn(&Sample) -> f64| {
                let own = along.iter();
                let own = own.filter(|(_, series)| mtu.is_none_or(|mtu| series.mtu == mtu));
                let points =
                    own.filter_map(|(x, series)| Some((f64::from(*x), value(&of(series)?))));
                Line::new(name, colour, points)
            };
            // Draw the range first and the median over it.
            let lines = |name: &str, mtu, colour| {
                [
                    line("", mtu, GREY, |sample| sample.min),
                    line("", mtu, GREY, |sample| sample.max),
                    line(name, mtu, colour, |sample| sample.median),
                ]
            };
            let by_mtu = axis.mtus.iter().zip([BLUE, VERMILION]);
            let by_mtu =
                by_mtu.flat_map(|(mtu, colour)| lines(&format!("MTU {mtu}"), Some(*mtu), colour));
            match axis.mtus {
                [] => Panel::linear(name, lines("", None, BLUE).into()),
                _ => Panel::linear(name, by_mtu.collect()),
            }
        };
        let (origin, rounds) = (self.origin.line(), self.rounds);
        Figure {
            title: format!("{}: how cost grows", axis.title),
            subtitle: format!("{origin} · {rounds} rounds: medians; grey: lowest and highest"),
            x_label: axis.label.to_owned(),
            x_scale: axis.scale,
            panels: axis.quantities.iter().map(panel).collect(),
            ..Figure::default()
        }
    }
}
