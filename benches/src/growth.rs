//! `make growth`: measures how a tunnel's cost grows with packet size, flows, peers and MTU.
//!
//! Each process of the speed test measures several tests, one after another, in the same tunnel. A round runs every
//! process once, and every crowd of busy peers ([`busy`]).

mod busy;
mod record;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::origin::Origin;
use crate::programs::first_line;
use crate::results;
use crate::rounds::{Progress, rotated};
use crate::speedtest::Speedtest;
use crate::tunnel::Contender;
use crate::tunnel::contender::{self, CONVOY};
use busy::Point;
pub(crate) use record::Record;
use record::{MTU, Series};

/// The result file.
pub(crate) const FILE: &str = "growth.json";

/// Measures how a tunnel's cost grows, and writes all values and four plots
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program to measure
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// Directory of wireguard-go, filled by `make peers`; without it, the one in `PATH` is measured
    #[arg(long, value_name = "DIR", default_value = "target/peers/bin")]
    peers: PathBuf,
    /// Rounds, each with every point
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A few points in one round: only checks that everything works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Directory for `growth.json` and the plots [default: benches/results; none with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The MTU and the peers of a tunnel, and the tests of the process that measures it.
type Call = (u32, u32, &'static str);

/// All points; three rounds take about ten minutes. The largest size is the largest that an MTU of 1,420 carries
/// unfragmented. 1,280 is the minimum MTU of IPv6, 8,920 fits Ethernet with frames of 9,000 bytes.
const FULL: [Call; 6] = [
    (
        MTU,
        1,
        "tcp-1,tcp-4,tcp-16,tcp-64,udp-64,udp-256,udp-512,udp-1024,udp-1200,udp-1392",
    ),
    (MTU, 100, "tcp-1"),
    (MTU, 1_000, "tcp-1"),
    (MTU, 10_000, "tcp-1"),
    (1_280, 1, "tcp-1"),
    (8_920, 1, "tcp-1,udp-4096,udp-8192"),
];

/// One or two points on each axis.
const QUICK: [Call; 3] = [
    (MTU, 1, "tcp-1,tcp-4,udp-1200"),
    (MTU, 100, "tcp-1"),
    (8_920, 1, "tcp-1"),
];

/// Busy peers of the hub.
const FULL_CROWDS: [u32; 3] = [1, 100, 1_000];
const QUICK_CROWDS: [u32; 1] = [100];

/// Measures, prints and writes the results.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let version = first_line(Command::new(&args.convoy).arg("--version"))?;
    let programs = [
        Contender::wireguard(CONVOY, &args.convoy),
        contender::wireguard_go(&args.peers),
    ];
    let programs = programs.map(Contender::with_version);
    let other = programs[1].version.clone();
    let origin = Origin::of_this_run([version].into_iter().chain(other).collect());
    let (calls, crowds, rounds, secs) = match args.quick {
        true => (&QUICK[..], &QUICK_CROWDS[..], 1, 1),
        false => (&FULL[..], &FULL_CROWDS[..], args.rounds, 2),
    };
    let crowds = crowds.iter().flat_map(|peers| {
        let programs = programs.iter();
        programs.map(|program| Point::new(program, *peers))
    });
    let mut crowds: Vec<_> = crowds.collect();
    let points = calls.len() + crowds.len();
    let mut progress = Progress::of(points * rounds as usize);
    let mut runs = vec![Vec::new(); calls.len()];
    for round in 0..rounds {
        for number in rotated(0..points, round) {
            let Some(&(mtu, peers, tests)) = calls.get(number) else {
                let crowd = &mut crowds[number - calls.len()];
                crowd.measure(Duration::from_secs(1))?;
                progress.step(&crowd.name());
                continue;
            };
            let options = format!("--mtu {mtu} --peers {peers} --secs {secs} --tests {tests}");
            // Any failure ends the run: with points missing, the others would not have been measured side by side.
            runs[number].push(Speedtest::run(&args.convoy, &options)?);
            progress.step(&options);
        }
    }
    let series = calls
        .iter()
        .zip(&runs)
        .flat_map(|((mtu, peers, tests), runs)| {
            let tests = tests.split(',');
            tests.map(|test| Series::of(*mtu, *peers, test, runs))
        });
    let record = Record {
        origin,
        rounds,
        secs,
        series: series.collect::<Result<_, _>>()?,
        busy: crowds.iter().flat_map(Point::rows).collect(),
    };
    let named = args.out.as_ref().map(|out| out.join(FILE));
    results::keep(&record, named.as_deref(), FILE, !args.quick)
}
