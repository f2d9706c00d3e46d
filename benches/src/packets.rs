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

use convoy_rows::plot::{Plot, Scale::Logarithmic};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use itertools::iproduct;

use send::{Method, Point};

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
/// Sizes that only the plots show.
const ONLY_PLOTTED: [f64; 5] = [16.0, 128.0, 512.0, 2048.0, 32_768.0];
pub(crate) const SECTION: Section = Section {
    title: "Packet rates of this kernel",
    command: "packet-rate",
    file: "packet_rate.jsonl",
    tables: &[Table {
        heading: "",
        shows: |row| {
            let is_sent = row.unit == "kpps" && row.figure == "sent";
            is_sent && row.scene == CLOSED_LOOPBACK && !ONLY_PLOTTED.contains(&row.place())
        },
        corner: "bytes",
        line: |row| row.place().to_string(),
        column: |row| format!("{}, kpps", row.contender),
        has_spread: false,
    }],
    plots: &PLOTS,
    legend: "One thread on loopback to a closed port; all other sizes and places are in the plots.",
};

const LOOPBACK: &str = "loopback, counting sink";
pub(crate) const CLOSED_LOOPBACK: &str = "loopback, closed port";
const VETH: &str = "veth, counting sink";
const CLOSED_VETH: &str = "veth, closed port";
/// Scenes, with the cable and the sink of their [`Point`]s.
const SCENES: [(&str, bool, bool); 4] = [
    (LOOPBACK, false, true),
    (CLOSED_LOOPBACK, false, false),
    (VETH, true, true),
    (CLOSED_VETH, true, false),
];
/// Contenders.
const METHODS: [(&str, Method); 3] = [
    ("send_to", Method::SendTo),
    ("sendmmsg", Method::Sendmmsg),
    ("GSO", Method::Gso),
];

#[rustfmt::skip]
const PLOTS: [Plot; 2] = [
    Plot::new("packet_rate_by_size.svg", "UDP from one thread: kpps by size", ("bytes of payload", Logarithmic), &[
        (LOOPBACK, "kpps", Logarithmic),
        (CLOSED_LOOPBACK, "kpps", Logarithmic),
        (VETH, "kpps", Logarithmic),
        (CLOSED_VETH, "kpps", Logarithmic),
    ]),
    Plot::new("bandwidth_by_size.svg", "UDP from one thread: Gbit/s by size", ("bytes of payload", Logarithmic), &[
        (LOOPBACK, "Gbit/s", Logarithmic),
        (CLOSED_LOOPBACK, "Gbit/s", Logarithmic),
        (VETH, "Gbit/s", Logarithmic),
        (CLOSED_VETH, "Gbit/s", Logarithmic),
    ]),
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
        let sizes = SIZES.into_iter().step_by(step);
        for (scene, (contender, method), size) in iproduct!(SCENES, METHODS, sizes) {
            let (scene, is_veth, is_counted) = scene;
            let point = Point {
                is_veth,
                is_counted,
                method,
                size,
            };
            // The kernel does not accept every combination.
            if point.datagrams_per_call().is_none() {
                continue;
            }
            match send::measure(&point, &ends, Duration::from_millis(window_ms)) {
                Ok((sent, received)) => {
                    for (figure, value) in [
                        (("sent", "kpps"), sent),
                        (("arrived", "kpps arrived"), received.unwrap_or(f64::NAN)),
                        (("sent", "Gbit/s"), sent * size as f64 * 8.0 / 1e6),
                    ] {
                        let row = Row::new(scene, contender, figure, round, value);
                        run.push(row.at(size as f64));
                    }
                }
                Err(error) => eprintln!("{point:?}: {error:#}"),
            }
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    let named = args.out.as_ref().map(|out| out.join(SECTION.file));
    SECTION.keep(&run, named.as_deref(), !args.quick)
}
