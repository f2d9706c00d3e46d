//! `make packet-rate`: how many datagrams a second one machine can send.
//!
//! ```text
//!   loopback                          veth
//!   ┌──── one ────┐                   ┌── left ──┐          ┌── right ──┐
//!   │ senders     │                   │ senders ─┼─ veth0 ──┼─ sink     │
//!   │   └─ lo ─ sink                  └──────────┘          └───────────┘
//!   └─────────────┘
//! ```
//!
//! Each sender is a thread with a socket of its own that sends as fast as it can, one datagram a call (`send_to`),
//! 64 (`sendmmsg`), or as many as one call may carry cut by the kernel (`UDP_SEGMENT`).

mod send;

use std::path::PathBuf;
use std::time::Duration;

use convoy_lab::measure::{Host, Sample};
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::plot::{BLUE, Figure, GREEN, Line, Panel, Scale, VERMILION};
use crate::results::{self, Picture, Report};
use crate::table::{self, number};
use send::Places;

/// The result file.
pub(crate) const FILE: &str = "packet_rate.json";

/// Sends datagrams as fast as this machine can, and writes rates, bandwidths and plots
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Four sizes, a tenth of a second each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Where the JSON and CSV files and the plots are put [default: benches/results; nowhere with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const SIZES: [usize; 14] = [
    2, 16, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 9000, 16_384, 32_768, 65_507,
];
const QUICK_SIZES: [usize; 4] = [2, 256, 1472, 65_507];
/// The size at which the number of threads varies: the cost of a call, not of its bytes.
const THREADS_SIZE: usize = 64;
/// More senders show nothing new.
const MOST_THREADS: usize = 32;
/// Datagrams in one `sendmmsg`, and segments that every kernel takes in one send.
const BATCH: usize = 64;
/// Most UDP payload of an IPv4 datagram (RFC 768, 791), and of one packet on the veth.
const MAX_PAYLOAD: usize = 65_507;
const VETH_PAYLOAD: usize = 1472;

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    origin: Origin,
    /// Length of one measurement.
    window_ms: u64,
    series: Vec<Series>,
}

/// One point, measured once a round.
#[derive(Debug, Serialize, Deserialize)]
struct Series {
    #[serde(flatten)]
    point: Point,
    rates: Vec<Rate>,
    /// The kernel's reasons where a round failed.
    failures: Vec<String>,
}

/// One combination of everything that varies; names are those of tables and plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Point {
    path: Path,
    method: Method,
    sink: Sink,
    ports: Ports,
    /// Each has a socket of its own.
    threads: usize,
    /// Bytes of UDP payload.
    size: usize,
}

/// The link between the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Path {
    Loopback,
    Veth,
}

/// How the kernel gets datagrams: one a call, [`BATCH`], or one train that it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    SendTo,
    Sendmmsg,
    #[serde(rename = "GSO")]
    Gso,
}

/// A thread that receives and counts, or a port at which datagrams are thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sink {
    #[serde(rename = "counting sink")]
    Counting,
    #[serde(rename = "closed port")]
    Closed,
}

/// A port for each sender, or one for all (`SO_REUSEPORT`), as a daemon with several threads would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Ports {
    #[serde(rename = "a port each")]
    Own,
    #[serde(rename = "one port")]
    Shared,
}

/// Datagrams a second of all senders together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Rate {
    /// Taken by the kernel.
    sent_pps: f64,
    /// Arrived, where they are counted.
    received_pps: Option<f64>,
}

const PATHS: [Path; 2] = [Path::Loopback, Path::Veth];
const METHODS: [Method; 3] = [Method::SendTo, Method::Sendmmsg, Method::Gso];
const SINKS: [Sink; 2] = [Sink::Counting, Sink::Closed];
const PORTS: [Ports; 2] = [Ports::Own, Ports::Shared];

/// Measures, prints and writes.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (sizes, rounds, window_ms, threads) = match args.quick {
        true => (&QUICK_SIZES[..], 1, 100, vec![1, 2]),
        false => (&SIZES[..], 3, 180, threads(Host::of_this_machine().cpus)),
    };
    let origin = Origin::of_this_run(Vec::new());
    let places = Places::make()?;
    let series = points(places.paths(), sizes, &threads).into_iter();
    let mut series: Vec<_> = series.map(Series::new).collect();
    for round in 1..=rounds {
        for Series {
            point,
            rates,
            failures,
        } in &mut series
        {
            match send::measure(point, &places, Duration::from_millis(window_ms)) {
                Ok(rate) => rates.push(rate),
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    let record = Record {
        origin,
        window_ms,
        series,
    };
    let named = args.out.as_ref().map(|out| out.join(FILE));
    if let Some(file) = results::file(named.as_deref(), FILE, !args.quick) {
        results::save_bytes(record.csv().as_bytes(), &file.with_extension("csv"))?;
    }
    results::keep(&record, named.as_deref(), FILE, !args.quick)
}

/// Every size by one thread, and every number of threads at one size; each point once.
fn points(paths: &[Path], sizes: &[usize], threads: &[usize]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for (path, method) in paths
        .iter()
        .flat_map(|&path| METHODS.map(|method| (path, method)))
    {
        let mut add = |sink, ports, threads, size| {
            let point = Point {
                path,
                method,
                sink,
                ports,
                threads,
                size,
            };
            if point.datagrams_a_call().is_some() && !points.contains(&point) {
                points.push(point);
            }
        };
        for sink in SINKS {
            sizes
                .iter()
                .for_each(|&size| add(sink, Ports::Own, 1, size));
        }
        for ports in PORTS {
            threads
                .iter()
                .for_each(|&threads| add(Sink::Closed, ports, threads, THREADS_SIZE));
        }
    }
    points
}

/// One, two and so on to twice the processors; on large machines by powers of two.
fn threads(cpus: usize) -> Vec<usize> {
    match (2 * cpus).min(MOST_THREADS) {
        most @ ..=4 => (1..=most).collect(),
        most => (0..=most.ilog2()).map(|power| 1 << power).collect(),
    }
}

impl Point {
    /// Datagrams in one call; none where the method has nothing to put together.
    fn datagrams_a_call(&self) -> Option<usize> {
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

    fn is_of_one_thread(&self) -> bool {
        self.threads == 1 && self.ports == Ports::Own
    }
}

impl Series {
    fn new(point: Point) -> Self {
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

/// The name of a choice.
fn shown(choice: impl Serialize) -> String {
    let name = serde_json::to_value(choice).ok();
    let name = name.and_then(|name| name.as_str().map(str::to_owned));
    name.unwrap_or_default()
}

impl Record {
    /// A line for each point.
    fn csv(&self) -> String {
        let head = "path,method,sink,ports,threads,size,sent_kpps,received_kpps,gbps\n";
        let figure = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
        let line = |series: &Series| {
            let it = &series.point;
            let names = [
                shown(it.path),
                shown(it.method),
                shown(it.sink),
                shown(it.ports),
            ];
            let figures = [series.kpps(), series.received_kpps(), series.gbps()].map(figure);
            let (names, figures) = (names.join(","), figures.join(","));
            format!("{names},{},{},{figures}\n", it.threads, it.size)
        };
        head.to_owned() + &self.series.iter().map(line).collect::<String>()
    }

    /// The median of one thread on loopback to a closed port, from the smallest size on.
    pub(crate) fn kpps(&self, method: Method) -> Vec<(usize, Option<f64>)> {
        let plain = self.series.iter().filter(|Series { point, .. }| {
            let is_plain = point.path == Path::Loopback && point.sink == Sink::Closed;
            is_plain && point.is_of_one_thread() && point.method == method
        });
        let rates = plain.map(|series| (series.point.size, series.kpps()));
        let mut rates: Vec<_> = rates.collect();
        rates.sort_by_key(|&(size, _)| size);
        rates
    }

    /// A panel with a line for each method.
    fn panel(
        &self,
        y_label: String,
        shows: impl Fn(&Point) -> bool,
        x: fn(&Point) -> usize,
        y: fn(&Series) -> Option<f64>,
    ) -> Panel {
        let lines = METHODS.into_iter().zip([GREEN, VERMILION, BLUE]);
        let lines = lines.map(|(method, colour)| {
            let own = self.series.iter().filter(|it| it.point.method == method);
            let own = own.filter(|series| shows(&series.point));
            let points = own.filter_map(|it| Some((x(&it.point) as f64, y(it)?)));
            let mut points: Vec<_> = points.collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line {
                name: shown(method),
                colour,
                points,
            }
        });
        Panel {
            y_label,
            // The methods reach rates a hundredfold apart.
            scale: Scale::Logarithmic,
            lines: lines.collect(),
        }
    }

    fn by_size(&self, unit: &str, of: fn(&Series) -> Option<f64>) -> Figure {
        let choices = PATHS
            .into_iter()
            .flat_map(|path| SINKS.map(|sink| (path, sink)));
        let panels = choices.map(|choice| {
            let shows = |it: &Point| it.is_of_one_thread() && (it.path, it.sink) == choice;
            let label = format!("{}, {} ({unit})", shown(choice.0), shown(choice.1));
            self.panel(label, shows, |point| point.size, of)
        });
        Figure {
            title: format!("UDP from one thread: {unit} by size"),
            subtitle: self.origin.line(),
            x_label: "bytes of payload".to_owned(),
            x_scale: Scale::Logarithmic,
            panels: panels.collect(),
            marks: Vec::new(),
        }
    }

    fn by_threads(&self) -> Figure {
        let choices = PATHS
            .into_iter()
            .flat_map(|path| PORTS.map(|ports| (path, ports)));
        let panels = choices.map(|choice| {
            let is_shown = |it: &Point| it.size == THREADS_SIZE && it.sink == Sink::Closed;
            let shows = |it: &Point| is_shown(it) && (it.path, it.ports) == choice;
            let label = format!("{}, {} (kpps)", shown(choice.0), shown(choice.1));
            self.panel(label, shows, |point| point.threads, Series::kpps)
        });
        Figure {
            title: format!("UDP, {THREADS_SIZE} bytes to a closed port: kpps by threads"),
            subtitle: self.origin.line(),
            x_label: "threads".to_owned(),
            panels: panels.collect(),
            ..Figure::default()
        }
    }
}

impl Report for Record {
    fn text(&self) -> String {
        let [one, many, trains] = METHODS.map(|method| self.kpps(method));
        let rows = one.iter().map(|(size, kpps)| {
            let of = |all: &[(usize, Option<f64>)]| {
                let own = all.iter().find(|(it, _)| it == size);
                number(own.and_then(|(_, kpps)| *kpps), 0)
            };
            vec![size.to_string(), number(*kpps, 0), of(&many), of(&trains)]
        });
        let head = ["bytes", "send_to, kpps", "sendmmsg, kpps", "GSO, kpps"];
        let failed = self.series.iter().flat_map(
            |Series {
                 point, failures, ..
             }| {
                let failures = failures.iter();
                failures.map(move |failure| format!("failed: {point:?}: {failure}\n"))
            },
        );
        format!(
            "{}\nOne thread on loopback to a closed port; all other points are in \
             [packet_rate.csv](results/packet_rate.csv).\n\n{}{}",
            self.origin.paragraph(),
            table::markdown(&head, rows),
            failed.collect::<String>()
        )
    }

    fn pictures(&self) -> anyhow::Result<Vec<Picture>> {
        let figures = [
            (
                "packet_rate_by_size.svg",
                self.by_size("kpps", Series::kpps),
            ),
            (
                "bandwidth_by_size.svg",
                self.by_size("Gbit/s", Series::gbps),
            ),
            ("packet_rate_by_threads.svg", self.by_threads()),
        ];
        let pictures = figures
            .into_iter()
            .map(|(file, figure)| Picture::of(file, &figure));
        pictures.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_takes_three_minutes_at_most_and_no_train_is_fragmented() {
        for cpus in [1, 2, 4, 16, 192] {
            let points = points(&PATHS, &SIZES, &threads(cpus));
            assert!(points.len() as f64 * 3.0 * 0.21 <= 180.0, "{cpus}");
            let trains = points.iter().filter(|it| it.method == Method::Gso);
            let mut on_veth = trains.filter(|it| it.path == Path::Veth);
            assert!(on_veth.all(|it| it.size <= 1472));
        }
        assert_eq!(threads(2), [1, 2, 3, 4]);
        assert_eq!(threads(8), [1, 2, 4, 8, 16]);
    }
}
