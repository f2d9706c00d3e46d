//! `make growth`: measures how a tunnel's cost grows with packet size, flows, peers and MTU.
//!
//! Each process of the speed test measures several tests, one after another, in the same tunnel. A round runs every
//! process once, and every crowd of busy peers ([`busy`]).

mod busy;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use convoy_rows::plot::{Plot, Scale};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;

use crate::programs::first_line;
use crate::rounds::{Progress, rotated};
use crate::speedtest;
use crate::tunnel::Contender;
use crate::tunnel::contender::{self, CONVOY};

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
    /// Directory for `growth.jsonl` and the plots [default: benches/results; none with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// WireGuard's usual MTU over Ethernet.
const MTU: u32 = 1_420;
const BY_SIZE: &str = "by packet size";
const BY_FLOWS: &str = "by flows";
const BY_PEERS: &str = "by peers";
const BY_MTU: &str = "by MTU";
use Scale::{Linear, Logarithmic};

pub(crate) const SECTION: Section = Section {
    title: "How cost grows",
    command: "growth",
    file: "growth.jsonl",
    tables: &[
        Table {
            heading: "By packet size",
            shows: |row| row.scene == BY_SIZE,
            corner: "bytes of UDP payload",
            line: |row| match row.contender.split_once(", ") {
                Some((_, setting)) => format!("{} ({setting})", row.at.unwrap_or_default()),
                None => row.at.unwrap_or_default().to_string(),
            },
            column: Row::label,
            has_spread: true,
        },
        Table {
            heading: "By flows, peers and MTU",
            shows: |row| [BY_FLOWS, BY_PEERS, BY_MTU].contains(&&row.scene[..]),
            corner: "",
            line: |row| {
                let at = row.at.unwrap_or_default();
                match &row.scene[..] {
                    BY_FLOWS => format!("{at} TCP streams"),
                    BY_PEERS => format!("{at} peers, all but one idle"),
                    _ => format!("MTU of {at} bytes"),
                }
            },
            column: Row::label,
            has_spread: true,
        },
        busy::TABLE,
    ],
    plots: &[
        Plot::new(
            "growth_by_packet_size.svg",
            "How cost grows with the packet size",
            // A part of the cost is per packet, and a part per byte.
            ("bytes of UDP payload", Linear),
            &[
                (BY_SIZE, "kpps", Linear),
                (BY_SIZE, "Gbit/s", Linear),
                (BY_SIZE, "CPU s/GB", Linear),
                (BY_SIZE, "CPU ns/packet", Linear),
            ],
        )
        .with_range(),
        Plot::new(
            "growth_by_flows.svg",
            "How cost grows with flows",
            ("TCP streams", Logarithmic),
            &[(BY_FLOWS, "Gbit/s", Linear), (BY_FLOWS, "CPU s/GB", Linear)],
        )
        .with_range(),
        Plot::new(
            "growth_by_peers.svg",
            "How cost grows with peers",
            ("peers, all but one idle", Logarithmic),
            &[
                (BY_PEERS, "Gbit/s", Linear),
                (BY_PEERS, "CPU s/GB", Linear),
                (BY_PEERS, "MiB", Linear),
            ],
        )
        .with_range(),
        Plot::new(
            "growth_by_mtu.svg",
            "How cost grows with the MTU",
            ("MTU in bytes", Linear),
            &[(BY_MTU, "Gbit/s", Linear), (BY_MTU, "CPU s/GB", Linear)],
        )
        .with_range(),
    ],
    legend: busy::LEGEND,
};

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

/// The scenes that a test in a tunnel belongs to, each with the place on its axis.
fn places(mtu: u32, peers: u32, test: &str) -> Vec<(&'static str, u32)> {
    let number = |kind| test.strip_prefix(kind)?.parse::<u32>().ok();
    let is_usual = mtu == MTU && peers == 1;
    let is_one = test == "tcp-1";
    let places = [
        (BY_SIZE, number("udp-")),
        (BY_FLOWS, number("tcp-").filter(|_| is_usual)),
        (BY_PEERS, Some(peers).filter(|_| mtu == MTU && is_one)),
        (BY_MTU, Some(mtu).filter(|_| peers == 1 && is_one)),
    ];
    let places = places.into_iter();
    places
        .filter_map(|(scene, place)| Some((scene, place?)))
        .collect()
}

/// Runs the tests of a tunnel, and adds their rows.
fn measure(
    args: &Args,
    (mtu, peers, tests): Call,
    secs: u32,
    round: u32,
    run: &mut Run,
) -> anyhow::Result<()> {
    let options = format!("--mtu {mtu} --peers {peers} --secs {secs} --tests {tests}");
    let output = speedtest::output(&args.convoy, &options)?;
    let memory = output["peak_memory_bytes"].as_f64().unwrap_or_default();
    for test in tests.split(',') {
        for (scene, place) in places(mtu, peers, test) {
            let contender = match scene == BY_SIZE && mtu != MTU {
                true => format!("{CONVOY}, MTU {mtu}"),
                false => CONVOY.to_owned(),
            };
            let mut add = |unit: &str, value, is_limited| {
                let row = Row::new(scene, &contender, ("", unit), round, value);
                run.push(row.at(place.into()).limited(is_limited));
            };
            for ((figure, unit), value, is_limited) in speedtest::figures(&output, test) {
                if figure.is_empty() && ["Gbit/s", "kpps", "CPU s/GB"].contains(&unit) {
                    add(unit, value, is_limited);
                }
                if scene == BY_SIZE && unit == "CPU s/GB" {
                    // Seconds per 10⁹ bytes are nanoseconds per byte.
                    add("CPU ns/packet", value * f64::from(place), is_limited);
                }
            }
            if scene == BY_PEERS {
                add("MiB", memory / 1_048_576.0, false);
            }
        }
    }
    Ok(())
}

/// Measures, prints and writes the results.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let version = first_line(Command::new(&args.convoy).arg("--version"))?;
    let other = contender::wireguard_go(&args.peers);
    let (calls, crowds, rounds, secs) = match args.quick {
        true => (&QUICK[..], &QUICK_CROWDS[..], 1, 1),
        false => (&FULL[..], &FULL_CROWDS[..], args.rounds, 2),
    };
    let mut run = Run::new(vec![version]);
    let mut programs = vec![Contender::wireguard(CONVOY, &args.convoy)];
    match other.version() {
        Some(version) => {
            run.origin.versions.push(version);
            programs.push(other);
        }
        None => run
            .origin
            .notes
            .push(format!("**Not measured: {}**", other.name)),
    }
    let crowds = crowds.iter();
    let crowds = crowds.flat_map(|peers| programs.iter().map(move |program| (program, *peers)));
    let crowds: Vec<_> = crowds.collect();
    let points = calls.len() + crowds.len();
    let mut progress = Progress::of(points * rounds as usize);
    for round in 0..rounds {
        for number in rotated(0..points, round) {
            // Any failure ends the run: with points missing, the others would not have been measured side by side.
            if let Some(call) = calls.get(number) {
                measure(args, *call, secs, round, &mut run)?;
                progress.step(&format!("MTU {}, {} peers: {}", call.0, call.1, call.2));
            } else {
                let (program, peers) = crowds[number - calls.len()];
                busy::measure(program, peers, Duration::from_secs(1), round, &mut run)?;
                progress.step(&format!("{}, {peers} busy peers", program.name));
            }
        }
    }
    let place = |row: &Row| (row.scene.clone(), row.at.unwrap_or_default() as u64);
    run.rows.sort_by_cached_key(place);
    let named = args.out.as_ref().map(|out| out.join(SECTION.file));
    SECTION.keep(&run, named.as_deref(), !args.quick)
}
