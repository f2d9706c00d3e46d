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

use convoy_rows::plot::{Plot, Scale};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;

use send::{Method, Path, Point, Sink};

/// Sends datagrams as fast as this machine can, and writes rates, bandwidths and plots (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Four sizes, 100 ms each: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// Directory for the result file and the plots [default: benches/results; none with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const SIZES: [usize; 14] = [
    2, 16, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 9000, 16_384, 32_768, 65_507,
];
pub(crate) const SECTION: Section = Section {
    title: "Packet rates of this kernel",
    command: "packet-rate",
    file: "packet_rate.jsonl",
    tables: &[Table {
        heading: "",
        shows: |row| row.scene == CLOSED_LOOPBACK && row.unit == "kpps" && row.figure == "sent",
        corner: "bytes",
        line: |row| row.at.unwrap_or_default().to_string(),
        column: |row| format!("{}, kpps", row.contender),
        has_spread: false,
    }],
    plots: &[
        Plot::new(
            "packet_rate_by_size.svg",
            "UDP from one thread: kpps by size",
            BY_SIZE,
            &[
                ("loopback, counting sink", "kpps", Scale::Logarithmic),
                (CLOSED_LOOPBACK, "kpps", Scale::Logarithmic),
                ("veth, counting sink", "kpps", Scale::Logarithmic),
                ("veth, closed port", "kpps", Scale::Logarithmic),
            ],
        ),
        Plot::new(
            "bandwidth_by_size.svg",
            "UDP from one thread: Gbit/s by size",
            BY_SIZE,
            &[
                ("loopback, counting sink", "Gbit/s", Scale::Logarithmic),
                (CLOSED_LOOPBACK, "Gbit/s", Scale::Logarithmic),
                ("veth, counting sink", "Gbit/s", Scale::Logarithmic),
                ("veth, closed port", "Gbit/s", Scale::Logarithmic),
            ],
        ),
    ],
    legend: "One thread on loopback to a closed port; all other points are in the plots.",
};
/// Scene without a receiver.
pub(crate) const CLOSED_LOOPBACK: &str = "loopback, closed port";
const BY_SIZE: (&str, Scale) = ("bytes of payload", Scale::Logarithmic);

/// Paths and sinks by scene, and methods by contender.
const SCENES: [(&str, Path, Sink); 4] = [
    ("loopback, counting sink", Path::Loopback, Sink::Counting),
    (CLOSED_LOOPBACK, Path::Loopback, Sink::Closed),
    ("veth, counting sink", Path::Veth, Sink::Counting),
    ("veth, closed port", Path::Veth, Sink::Closed),
];
const METHODS: [(&str, Method); 3] = [
    ("send_to", Method::SendTo),
    ("sendmmsg", Method::Sendmmsg),
    ("GSO", Method::Gso),
];

/// Measures, prints and writes the results.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (step, rounds, window_ms) = match args.quick {
        true => (4, 1, 100),
        false => (1, 3, 180),
    };
    let mut run = Run::new(Vec::new());
    let (_lab, ends) = send::namespaces()?;
    for round in 0..rounds {
        for (scene, contender, point) in points(step) {
            let (sent, received) =
                match send::measure(&point, &ends, Duration::from_millis(window_ms)) {
                    Ok(rates) => rates,
                    Err(error) => {
                        eprintln!("{point:?}: {error:#}");
                        continue;
                    }
                };
            let gbps = sent * point.size as f64 * 8.0 / 1e6;
            let rates = [
                ("sent", "kpps", Some(sent)),
                ("arrived", "kpps arrived", received),
            ];
            for (figure, unit, value) in rates.into_iter().chain([("sent", "Gbit/s", Some(gbps))]) {
                let row = |value| Row::new(scene, contender, (figure, unit), round, value);
                value
                    .into_iter()
                    .for_each(|value| run.push(row(value).at(point.size as f64)));
            }
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    let named = args.out.as_ref().map(|out| out.join(SECTION.file));
    SECTION.keep(&run, named.as_deref(), !args.quick)
}

/// Every combination that the kernel accepts, with every `step`-th size.
fn points(step: usize) -> Vec<(&'static str, &'static str, Point)> {
    let mut points = Vec::new();
    for (scene, path, sink) in SCENES {
        for (contender, method) in METHODS {
            let sizes = SIZES.into_iter().step_by(step).map(|size| Point {
                path,
                method,
                sink,
                size,
            });
            points.extend(sizes.map(|point| (scene, contender, point)));
        }
    }
    points.retain(|(.., point)| point.datagrams_per_call().is_some());
    points
}
