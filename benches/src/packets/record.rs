//! The points, the result file, its lines as CSV, the table and the plots.

use serde::{Deserialize, Serialize};

use convoy_lab::measure::Sample;

use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREEN, Line, Panel, Scale, VERMILION};
use crate::table::{self, number};

/// Datagrams in one `sendmmsg`, and segments that every kernel takes in one send.
pub(super) const BATCH: usize = 64;
/// Most UDP payload of an IPv4 datagram (RFC 768, 791), and of one packet on the veth.
const MAX_PAYLOAD: usize = 65_507;
const VETH_PAYLOAD: usize = 1472;

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) origin: Origin,
    /// Length of one measurement.
    pub(crate) window_ms: u64,
    pub(crate) series: Vec<Series>,
}

/// One point, measured once a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) rates: Vec<Rate>,
    /// The kernel's reasons where a round failed.
    pub(crate) failures: Vec<String>,
}

/// One combination of everything that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) path: Path,
    pub(crate) method: Method,
    pub(crate) sink: Sink,
    pub(crate) ports: Ports,
    /// Each has a socket of its own.
    pub(crate) threads: usize,
    /// Bytes of UDP payload.
    pub(crate) size: usize,
}

/// Datagrams a second of all senders together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Rate {
    /// Taken by the kernel.
    pub(crate) sent_pps: f64,
    /// Arrived, where they are counted.
    pub(crate) received_pps: Option<f64>,
}

/// A choice, with a name for files and one for people.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $all:ident: $($(#[$of:meta])* $variant:ident = $shown:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum $name { $($(#[$of])* $variant),+ }
        pub(super) const $all: [$name; [$($shown),+].len()] = [$($name::$variant),+];
        impl $name {
            fn shown(self) -> &'static str { match self { $(Self::$variant => $shown),+ } }
        }
    };
}

choice!(
    /// What lies between the sockets.
    Path, PATHS: Loopback = "loopback", Veth = "veth");
choice!(
    /// How datagrams are handed to the kernel: one a call, [`BATCH`], or as one train that it cuts.
    Method, METHODS: SendTo = "send_to", Sendmmsg = "sendmmsg", Gso = "GSO");
choice!(
    /// A thread that receives and counts, or a port at which datagrams are thrown away.
    Sink, SINKS: Counting = "counting sink", Closed = "closed port");
choice!(
    /// A port for each sender, or one for all (`SO_REUSEPORT`), as a daemon with several threads would have.
    Ports, PORTS: Own = "a port each", Shared = "one port");

impl Point {
    /// Datagrams in one call; none where the method has nothing to put together.
    pub(super) fn datagrams_a_call(&self) -> Option<usize> {
        match self.method {
            Method::SendTo => Some(1),
            Method::Sendmmsg => Some(BATCH),
            Method::Gso => {
                let largest = match self.path {
                    Path::Loopback => MAX_PAYLOAD,
                    // Longer ones are fragmented, and segments refused.
                    Path::Veth => VETH_PAYLOAD,
                };
                let segments = (MAX_PAYLOAD / self.size).min(BATCH);
                (self.size <= largest && segments > 1).then_some(segments)
            }
        }
    }
}

impl Series {
    /// A point that is not measured yet.
    pub(super) fn of(point: Point) -> Self {
        Self {
            point,
            rates: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Thousands of datagrams sent a second: the median of the rounds.
    fn kpps(&self) -> Option<f64> {
        let sent = self.rates.iter().map(|rate| rate.sent_pps / 1e3);
        Some(Sample::of(sent.collect())?.median)
    }

    /// The same in payload: Gbit/s.
    fn gbps(&self) -> Option<f64> {
        Some(self.kpps()? * self.point.size as f64 * 8.0 / 1e6)
    }

    fn received_kpps(&self) -> Option<f64> {
        let received = self.rates.iter().filter_map(|rate| rate.received_pps);
        Some(Sample::of(received.map(|pps| pps / 1e3).collect())?.median)
    }
}

impl Record {
    /// A line for each point.
    pub(super) fn csv(&self) -> String {
        let head = "path,method,sink,ports,threads,size,sent_kpps,received_kpps,gbps\n";
        let figure = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
        let line = |series: &Series| {
            let Point {
                path,
                method,
                sink,
                ports,
                threads,
                size,
            } = series.point;
            let names = [path.shown(), method.shown(), sink.shown(), ports.shown()].join(",");
            let figures = [series.kpps(), series.received_kpps(), series.gbps()]
                .map(figure)
                .join(",");
            format!("{names},{threads},{size},{figures}\n")
        };
        head.to_owned() + &self.series.iter().map(line).collect::<String>()
    }

    /// One thread on loopback to a closed port: a row a size; and what failed.
    pub(crate) fn table(&self) -> String {
        let head = ["bytes", "send_to, kpps", "sendmmsg, kpps", "GSO, kpps"].map(str::to_owned);
        let row = |size: usize| {
            let kpps = METHODS.map(|method| number(self.kpps(method, size), 0));
            [size.to_string()].into_iter().chain(kpps).collect()
        };
        let rows = self.sizes().into_iter().map(row);
        let failed = self.series.iter().flat_map(|series| {
            let failures = series.failures.iter();
            failures.map(|failure| format!("failed: {:?}: {failure}\n", series.point))
        });
        table::markdown([head.to_vec()].into_iter().chain(rows).collect())
            + &failed.collect::<String>()
    }

    /// Of one thread on loopback to a closed port: the median.
    pub(crate) fn kpps(&self, method: Method, size: usize) -> Option<f64> {
        let mut plain = self.plain();
        plain
            .find(|series| (series.point.method, series.point.size) == (method, size))?
            .kpps()
    }

    /// From the smallest.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self.plain().map(|series| series.point.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn plain(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|Series { point, .. }| {
            let by_one = point.threads == 1 && point.ports == Ports::Own;
            by_one && point.path == Path::Loopback && point.sink == Sink::Closed
        })
    }

    /// The plots, each with the name of its file.
    pub(crate) fn figures(&self) -> [(&'static str, Figure); 3] {
        let by_size = |unit: &str, of: fn(&Series) -> Option<f64>| {
            let panel = |path, sink: Sink| {
                let shows = move |point: &Point| {
                    let by_one = point.threads == 1 && point.ports == Ports::Own;
                    by_one && (point.path, point.sink) == (path, sink)
                };
                self.panel(
                    format!("{}, {} ({unit})", path.shown(), sink.shown()),
                    shows,
                    |point| point.size,
                    of,
                )
            };
            let panels = PATHS
                .into_iter()
                .flat_map(|path| SINKS.map(|sink| panel(path, sink)));
            let title = format!("UDP from one thread: {unit} by size");
            self.figure(
                title,
                "bytes of payload",
                Scale::Logarithmic,
                panels.collect(),
            )
        };
        let size = self.series.iter().find(|series| series.point.threads > 1);
        let size = size.map_or(0, |series| series.point.size);
        let by_threads = |path, ports: Ports| {
            let shows = move |point: &Point| {
                let of_size = point.size == size && point.sink == Sink::Closed;
                of_size && (point.path, point.ports) == (path, ports)
            };
            let label = format!("{}, {} (kpps)", path.shown(), ports.shown());
            self.panel(label, shows, |point| point.threads, Series::kpps)
        };
        let threads = PATHS
            .into_iter()
            .flat_map(|path| PORTS.map(|ports| by_threads(path, ports)));
        let title = format!("UDP, {size} bytes to a closed port: kpps by threads");
        [
            ("packet_rate_by_size.svg", by_size("kpps", Series::kpps)),
            ("bandwidth_by_size.svg", by_size("Gbit/s", Series::gbps)),
            (
                "packet_rate_by_threads.svg",
                self.figure(title, "threads", Scale::Linear, threads.collect()),
            ),
        ]
    }

    fn figure(&self, title: String, x_label: &str, x_scale: Scale, panels: Vec<Panel>) -> Figure {
        let (subtitle, x_label) = (self.origin.line(), x_label.to_owned());
        Figure {
            title,
            subtitle,
            x_label,
            x_scale,
            panels,
            marks: Vec::new(),
        }
    }

    /// A line for each method.
    fn panel(
        &self,
        y_label: String,
        shows: impl Fn(&Point) -> bool,
        x: fn(&Point) -> usize,
        y: fn(&Series) -> Option<f64>,
    ) -> Panel {
        let lines = METHODS
            .into_iter()
            .zip([GREEN, VERMILION, BLUE])
            .map(|(method, colour)| {
                let own = self.series.iter().filter(|series| shows(&series.point));
                let own = own.filter(|series| series.point.method == method);
                let points = own.filter_map(|series| Some((x(&series.point) as f64, y(series)?)));
                let mut points: Vec<_> = points.collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Line {
                    name: method.shown().to_owned(),
                    colour,
                    points,
                }
            });
        // The methods reach rates a hundredfold apart.
        Panel {
            y_label,
            scale: Scale::Logarithmic,
            lines: lines.collect(),
        }
    }
}
