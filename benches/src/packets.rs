//! `make packet-rate`: measures how many datagrams per second one machine can send.
//!
//! ```text
//!   loopback                          veth
//!   ┌── left ─────┐                   ┌── left ──┐          ┌── right ──┐
//!   │ sender      │                   │ sender ──┼─ veth0 ──┼─ sink     │
//!   │   └─ lo ─ sink                  └──────────┘          └───────────┘
//!   └─────────────┘
//! ```
//!
//! One thread sends as fast as it can: one datagram per call (`send_to`), 64 per call (`sendmmsg`), or one buffer per
//! call that the kernel cuts into as many segments as fit (`UDP_SEGMENT`).

mod send;

use std::path::PathBuf;
use std::time::Duration;

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREEN, Line, Panel, Scale, VERMILION};
use crate::results::{self, Picture, Report};
use crate::table::{self, number};

/// The result file.
pub(crate) const FILE: &str = "packet_rate.json";

/// Sends datagrams as fast as this machine can, and writes rates, bandwidths and plots (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Four sizes, 100 ms each: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// Directory for the JSON and CSV files and the plots [default: benches/results; none with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const SIZES: [usize; 14] = [
    2, 16, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 9000, 16_384, 32_768, 65_507,
];
/// Datagrams per `sendmmsg`; every kernel also takes this many segments in one send.
const BATCH: usize = 64;
/// Largest UDP payload of an IPv4 datagram (RFC 768, 791), and of one packet on the veth.
const MAX_PAYLOAD: usize = 65_507;
const VETH_PAYLOAD: usize = 1472;

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    origin: Origin,
    points: Vec<Point>,
}

/// One combination of all parameters, measured once per round.
#[derive(Debug, Serialize, Deserialize)]
struct Point {
    path: Path,
    method: Method,
    sink: Sink,
    /// Bytes of UDP payload.
    size: usize,
    /// Thousands of datagrams per second that the kernel accepted.
    sent_kpps: Vec<f64>,
    /// Thousands per second that arrived, if the sink counts them.
    received_kpps: Vec<f64>,
}

/// The link between the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Path {
    Loopback,
    Veth,
}

/// How datagrams reach the kernel: one per call, [`BATCH`] per call, or one buffer that it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    SendTo,
    Sendmmsg,
    #[serde(rename = "GSO")]
    Gso,
}

/// A thread that receives and counts, or a port that discards datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sink {
    #[serde(rename = "counting sink")]
    Counting,
    #[serde(rename = "closed port")]
    Closed,
}

/// A panel of a plot, and the figure drawn in it.
type Way = (Path, Sink);
type Quantity = fn(&Point) -> Option<f64>;

const WAYS: [Way; 4] = [
    (Path::Loopback, Sink::Counting),
    (Path::Loopback, Sink::Closed),
    (Path::Veth, Sink::Counting),
    (Path::Veth, Sink::Closed),
];
const METHODS: [Method; 3] = [Method::SendTo, Method::Sendmmsg, Method::Gso];

/// Measures, prints and writes the results.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (step, rounds, window_ms) = match args.quick {
        true => (4, 1, 100),
        false => (1, 3, 180),
    };
    let origin = Origin::of_this_run(Vec::new());
    let (_lab, ends) = send::namespaces()?;
    let mut points = points(step);
    for round in 1..=rounds {
        for point in &mut points {
            match send::measure(point, &ends, Duration::from_millis(window_ms)) {
                Ok((sent_kpps, received_kpps)) => {
                    point.sent_kpps.push(sent_kpps);
                    point.received_kpps.extend(received_kpps);
                }
                Err(error) => eprintln!("{point:?}: {error:#}"),
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    let record = Record { origin, points };
    let named = args.out.as_ref().map(|out| out.join(FILE));
    if let Some(file) = results::file(named.as_deref(), FILE, !args.quick) {
        results::save_bytes(record.csv().as_bytes(), &file.with_extension("csv"))?;
    }
    results::keep(&record, named.as_deref(), FILE, !args.quick)
}

/// Every combination that the kernel accepts, with every `step`-th size.
fn points(step: usize) -> Vec<Point> {
    let mut points = Vec::new();
    let lines = WAYS
        .into_iter()
        .flat_map(|way| METHODS.map(|method| (way, method)));
    for ((path, sink), method) in lines {
        points.extend(SIZES.into_iter().step_by(step).map(|size| Point {
            path,
            method,
            sink,
            size,
            sent_kpps: Vec::new(),
            received_kpps: Vec::new(),
        }));
    }
    points.retain(|point| point.datagrams_per_call().is_some());
    points
}

impl Point {
    /// `None` if the method has nothing to batch.
    fn datagrams_per_call(&self) -> Option<usize> {
        match (self.method, self.path) {
            (Method::SendTo, _) => Some(1),
            (Method::Sendmmsg, _) => Some(BATCH),
            // The kernel refuses segments that do not fit one packet.
            (Method::Gso, Path::Veth) if self.size > VETH_PAYLOAD => None,
            (Method::Gso, _) => {
                let segments = (MAX_PAYLOAD / self.size).min(BATCH);
                (segments > 1).then_some(segments)
            }
        }
    }

    fn kpps(&self) -> Option<f64> {
        median(&self.sent_kpps)
    }

    /// The rate as payload, in Gbit/s.
    fn gbps(&self) -> Option<f64> {
        Some(self.kpps()? * self.size as f64 * 8.0 / 1e6)
    }
}

fn median(rounds: &[f64]) -> Option<f64> {
    Some(Sample::of(rounds.to_vec())?.median)
}

/// The name of a choice.
fn shown(choice: impl Serialize) -> String {
    let name = serde_json::to_value(choice).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

impl Record {
    /// One line per point.
    fn csv(&self) -> String {
        let mut csv = "path,method,sink,size,sent_kpps,received_kpps,gbps\n".to_owned();
        for point in &self.points {
            let names = [shown(point.path), shown(point.method), shown(point.sink)];
            let figures = [point.kpps(), median(&point.received_kpps), point.gbps()];
            let figures = figures.map(|it| it.map_or(String::new(), |value| format!("{value:.3}")));
            let (names, figures) = (names.join(","), figures.join(","));
            csv += &format!("{names},{},{figures}\n", point.size);
        }
        csv
    }

    /// The medians on loopback to a closed port, by size.
    pub(crate) fn kpps(&self, method: Method) -> Vec<(f64, f64)> {
        self.by_size((Path::Loopback, Sink::Closed), method, Point::kpps)
    }

    fn by_size(&self, way: Way, method: Method, of: Quantity) -> Vec<(f64, f64)> {
        let own = self.points.iter();
        let own = own.filter(|it| (it.path, it.sink) == way && it.method == method);
        own.filter_map(|point| Some((point.size as f64, of(point)?)))
            .collect()
    }

    /// One panel for each path and sink, with one line per method.
    fn figure(&self, unit: &str, of: Quantity) -> Figure {
        let panel = |way: Way| {
            let lines = METHODS.into_iter().zip([GREEN, VERMILION, BLUE]);
            let lines = lines.map(|(method, colour)| {
                Line::new(shown(method), colour, self.by_size(way, method, of))
            });
            let y_label = format!("{}, {} ({unit})", shown(way.0), shown(way.1));
            // The methods' rates differ by a factor of a hundred.
            Panel::logarithmic(y_label, lines.collect())
        };
        Figure {
            title: format!("UDP from one thread: {unit} by size"),
            subtitle: self.origin.line(),
            x_label: "bytes of payload".to_owned(),
            x_scale: Scale::Logarithmic,
            panels: WAYS.map(panel).into(),
            ..Figure::default()
        }
    }
}

impl Report for Record {
    fn text(&self) -> String {
        let [one, many, cut] = METHODS.map(|method| self.kpps(method));
        let rows = one.iter().map(|&(size, kpps)| {
            let of = |method: &[(f64, f64)]| {
                let own = method.iter().find(|(it, _)| *it == size);
                number(own.map(|&(_, kpps)| kpps), 0)
            };
            vec![size.to_string(), number(Some(kpps), 0), of(&many), of(&cut)]
        });
        let head = "bytes | send_to, kpps | sendmmsg, kpps | GSO, kpps";
        format!(
            "{}\nOne thread on loopback to a closed port; all other points are in \
             [packet_rate.csv](results/packet_rate.csv).\n\n{}",
            self.origin.paragraph(),
            table::markdown(head, rows)
        )
    }

    fn pictures(&self) -> anyhow::Result<Vec<Picture>> {
        let rates = self.figure("kpps", Point::kpps);
        let bandwidths = self.figure("Gbit/s", Point::gbps);
        Ok(vec![
            Picture::of("packet_rate_by_size.svg", &rates)?,
            Picture::of("bandwidth_by_size.svg", &bandwidths)?,
        ])
    }
}
