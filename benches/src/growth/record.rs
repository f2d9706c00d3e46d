//! The result file, its tables and its plots.

use convoy_lab::measure::Sample;
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREY, Line, Panel, Scale, VERMILION};
use crate::speedtest::Speedtest;
use crate::table;

/// Explains the tables.
pub(crate) const LEGEND: &str = "Medians, and the lowest and the highest of the rounds; \"of\" gives the number \
    of rounds with the figure where not all have it. CPU time is that of both daemons. `*`: the generator set the \
    limit in a round.";

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) origin: Origin,
    /// Every point is measured once a round.
    pub(crate) rounds: u32,
    /// Counted seconds of a test.
    pub(crate) secs: u32,
    /// A series for each point.
    pub(crate) series: Vec<Series>,
}

/// Between two namespaces, on a veth that carries its datagrams whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tunnel {
    /// In bytes.
    pub(crate) mtu: u32,
    /// Of each daemon; all but one idle.
    pub(crate) peers: u32,
}

/// WireGuard's usual MTU over Ethernet, and two daemons that know only each other.
pub(crate) const USUAL: Tunnel = Tunnel {
    mtu: 1_420,
    peers: 1,
};

/// One test in one tunnel. A round has no value where a figure does not apply, and no rate where more than 1 %
/// was lost at any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    #[serde(flatten)]
    pub(crate) tunnel: Tunnel,
    /// The speed test's name of it.
    pub(crate) test: String,
    /// Payload that arrived.
    pub(crate) gbps: Option<Sample>,
    /// UDP: the highest rate with at most 1 % loss.
    pub(crate) kpps: Option<Sample>,
    /// CPU seconds of both daemons for a gigabyte of payload.
    pub(crate) cpu_s_per_gb: Option<Sample>,
    /// The most memory that one of the two daemons had, after all tests in this tunnel.
    pub(crate) peak_memory_bytes: Option<Sample>,
    /// UDP: rounds in which the generator, not loss, set the limit.
    pub(crate) generator_limited: u32,
}

/// Something that cost grows with.
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    /// With its unit.
    label: &'static str,
    /// The plot's file.
    pub(crate) plot: &'static str,
    scale: Scale,
    quantities: &'static [Quantity],
    /// Where a series lies on it; none where something else was varied.
    place: fn(&Series) -> Option<u32>,
}

/// A figure: its name with the unit, the digits shown, and its values over the rounds.
type Quantity = (&'static str, usize, fn(&Series) -> Option<Sample>);

const GBPS: Quantity = ("Gbit/s", 2, |series| series.gbps.clone());
const KPPS: Quantity = ("kpps", 1, |series| series.kpps.clone());
const CPU: Quantity = ("CPU s/GB", 2, |series| series.cpu_s_per_gb.clone());
const CPU_PER_PACKET: Quantity = ("CPU ns/packet", 0, |series| {
    // Seconds for 10⁹ bytes are nanoseconds for one.
    scaled(series.cpu_s_per_gb.as_ref(), series.number("udp-")?.into())
});
const MEMORY: Quantity = ("peak MiB", 1, |series| {
    scaled(series.peak_memory_bytes.as_ref(), 1.0 / 1_048_576.0)
});

/// All axes, in the order in which they are shown.
pub(crate) const AXES: [Axis; 4] = [
    Axis {
        title: "By packet size",
        label: "bytes of UDP payload",
        plot: "growth_by_packet_size.svg",
        // Evenly: a packet costs something, and each of its bytes does.
        scale: Scale::Linear,
        quantities: &[KPPS, GBPS, CPU, CPU_PER_PACKET],
        place: |series| series.number("udp-"),
    },
    Axis {
        title: "By flows",
        label: "TCP streams",
        plot: "growth_by_flows.svg",
        scale: Scale::Logarithmic,
        quantities: &[GBPS, CPU],
        place: |series| series.number("tcp-").filter(|_| series.tunnel == USUAL),
    },
    Axis {
        title: "By peers",
        label: "peers, all but one idle",
        plot: "growth_by_peers.svg",
        scale: Scale::Logarithmic,
        quantities: &[GBPS, CPU, MEMORY],
        place: |series| series.of_one_stream(series.tunnel.mtu == USUAL.mtu, series.tunnel.peers),
    },
    Axis {
        title: "By MTU",
        label: "MTU in bytes",
        plot: "growth_by_mtu.svg",
        scale: Scale::Linear,
        quantities: &[GBPS, CPU],
        place: |series| series.of_one_stream(series.tunnel.peers == USUAL.peers, series.tunnel.mtu),
    },
];

impl Series {
    /// The series of `test` in `tunnel`, of which each of `rounds` has a run.
    pub(super) fn of(tunnel: Tunnel, test: &str, rounds: &[Speedtest]) -> anyhow::Result<Self> {
        let runs = rounds.iter().map(|round| round.of(test));
        let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
        let limited = runs
            .iter()
            .filter(|run| run.generator_limited == Some(true));
        let memory = rounds.iter().filter_map(|round| round.peak_memory_bytes);
        Ok(Self {
            tunnel,
            test: test.to_owned(),
            gbps: Sample::of(runs.iter().filter_map(|run| run.gbps).collect()),
            kpps: Sample::of(runs.iter().filter_map(|run| run.kpps).collect()),
            cpu_s_per_gb: Sample::of(runs.iter().filter_map(|run| run.cpu_s_per_gb).collect()),
            peak_memory_bytes: Sample::of(memory.map(|bytes| bytes as f64).collect()),
            generator_limited: limited.count() as u32,
        })
    }

    /// Bytes of `udp-…`, streams of `tcp-…`.
    fn number(&self, kind: &str) -> Option<u32> {
        self.test.strip_prefix(kind)?.parse().ok()
    }

    fn of_one_stream(&self, is_usual: bool, place: u32) -> Option<u32> {
        (is_usual && self.number("tcp-") == Some(1)).then_some(place)
    }
}

fn scaled(sample: Option<&Sample>, factor: f64) -> Option<Sample> {
    Sample::of(sample?.values.iter().map(|value| value * factor).collect())
}

impl Record {
    /// The series on an axis, from the lowest place on.
    fn along(&self, axis: &Axis) -> Vec<(u32, &Series)> {
        let placed = self
            .series
            .iter()
            .filter_map(|series| Some(((axis.place)(series)?, series)));
        let mut along: Vec<_> = placed.collect();
        along.sort_by_key(|&(place, _)| place);
        along
    }

    /// The figures along an axis: a row for each place.
    pub(crate) fn table(&self, axis: &Axis) -> String {
        let names = axis.quantities.iter().map(|(name, _, _)| *name);
        let head = [axis.label]
            .into_iter()
            .chain(names)
            .map(str::to_owned)
            .collect();
        let row = |(place, series): (u32, &Series)| {
            let mark = if series.generator_limited > 0 {
                "*"
            } else {
                ""
            };
            let mtu = match series.tunnel.mtu {
                mtu if axis.title == AXES[0].title && mtu != USUAL.mtu => format!(" (MTU {mtu})"),
                _ => String::new(),
            };
            let figures = axis
                .quantities
                .iter()
                .map(|quantity| self.cell(series, quantity));
            [format!("{place}{mark}{mtu}")]
                .into_iter()
                .chain(figures)
                .collect()
        };
        table::markdown(
            [head]
                .into_iter()
                .chain(self.along(axis).into_iter().map(row))
                .collect(),
        )
    }

    fn cell(&self, series: &Series, (_, digits, of): &Quantity) -> String {
        let Some(Sample {
            median,
            min,
            max,
            values,
        }) = of(series)
        else {
            return table::cell(None::<f64>);
        };
        let rounds = match values.len() {
            all if all == self.rounds as usize => String::new(),
            some => format!("; {some} of {}", self.rounds),
        };
        format!("{median:.digits$} ({min:.digits$}–{max:.digits$}{rounds})")
    }

    /// A panel for each quantity along an axis.
    pub(crate) fn figure(&self, axis: &Axis) -> Figure {
        let along = self.along(axis);
        // Sizes are joined where they went through the same tunnel.
        let is_joined =
            |series: &Series, mtu: u32| axis.title != AXES[0].title || series.tunnel.mtu == mtu;
        let mut mtus: Vec<_> = along.iter().map(|(_, series)| series.tunnel.mtu).collect();
        mtus.sort_unstable();
        mtus.dedup();
        if axis.title != AXES[0].title {
            mtus.truncate(1);
        }
        let lines = |of: fn(&Series) -> Option<Sample>| {
            let of_mtu = |(&mtu, colour): (&u32, RGBColor)| {
                let own = along
                    .iter()
                    .filter(move |(_, series)| is_joined(series, mtu));
                let own: Vec<_> = own
                    .filter_map(|(place, series)| Some((f64::from(*place), of(series)?)))
                    .collect();
                let name = if mtus.len() > 1 {
                    format!("MTU {mtu}")
                } else {
                    String::new()
                };
                let line = |name, colour, value: fn(&Sample) -> f64| Line {
                    name,
                    colour,
                    points: own
                        .iter()
                        .map(|(place, sample)| (*place, value(sample)))
                        .collect(),
                };
                // The range first: the median is drawn over it.
                [
                    line(String::new(), GREY, |sample| sample.min),
                    line(String::new(), GREY, |sample| sample.max),
                    line(name, colour, |sample| sample.median),
                ]
            };
            mtus.iter()
                .zip([BLUE, VERMILION])
                .flat_map(of_mtu)
                .collect()
        };
        let panel = |&(name, _, of): &Quantity| Panel {
            y_label: name.to_owned(),
            scale: Scale::Linear,
            lines: lines(of),
        };
        let origin = self.origin.line();
        Figure {
            title: format!("{}: how cost grows", axis.title),
            subtitle: format!(
                "{origin} · {} rounds: medians; grey: lowest and highest",
                self.rounds
            ),
            x_label: axis.label.to_owned(),
            x_scale: axis.scale,
            panels: axis.quantities.iter().map(panel).collect(),
            marks: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot;

    #[test]
    fn a_series_lies_on_the_axes_that_it_varies_and_is_drawn_there() {
        let sample = |value| Sample::of(vec![value, value]);
        let series = |mtu, peers, test: &str| Series {
            tunnel: Tunnel { mtu, peers },
            test: test.to_owned(),
            gbps: sample(6.0),
            kpps: sample(300.0),
            cpu_s_per_gb: sample(2.0),
            peak_memory_bytes: sample(1_048_576.0),
            generator_limited: u32::from(test == "udp-64"),
        };
        let points = [
            (1_420, 1, "tcp-1"),
            (1_420, 1, "tcp-4"),
            (1_420, 100, "tcp-1"),
            (8_920, 1, "tcp-1"),
            (1_420, 1, "udp-64"),
            (8_920, 1, "udp-8192"),
        ];
        let record = Record {
            origin: Origin::of_this_run(Vec::new()),
            rounds: 2,
            secs: 1,
            series: points
                .map(|(mtu, peers, test)| series(mtu, peers, test))
                .into(),
        };
        let places = AXES.each_ref().map(|axis| {
            record
                .along(axis)
                .iter()
                .map(|(place, _)| *place)
                .collect::<Vec<_>>()
        });
        assert_eq!(
            places,
            [
                vec![64, 8_192],
                vec![1, 4],
                vec![1, 100],
                vec![1_420, 8_920]
            ]
        );
        let table = record.table(&AXES[0]);
        assert!(
            table.contains("| 64*  ") && table.contains("| 8192 (MTU 8920) "),
            "{table}"
        );
        assert!(
            table.contains("128 (128–128)"),
            "CPU time for a packet: {table}"
        );
        for axis in &AXES {
            let svg = plot::svg(&record.figure(axis)).unwrap();
            assert!(
                axis.quantities
                    .iter()
                    .all(|(name, _, _)| svg.contains(name))
                    && !svg.contains("NaN")
            );
        }
    }
}
