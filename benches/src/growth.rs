//! `make growth`: measures how a tunnel's cost grows with packet size, flows, peers and MTU.
//!
//! Each process of the speed test measures several tests, one after another, in the same tunnel. A round runs every
//! process once, and each program with every [crowd] of busy peers.

mod crowd;
mod flow;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use convoy_rows::plot::{Plot, Scale};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;

use crate::agent::TUNNEL_MTU;
use crate::programs::first_line;
use crate::rounds::{interleaved, perform, rotated};
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
    #[arg(default_value_if("quick", "true", "1"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A few points in one round: only checks that everything works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Directory for `growth.jsonl` and the plots [default: benches/results; none with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

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
                Some((_, setting)) => format!("{} ({setting})", row.place()),
                None => row.place().to_string(),
            },
            column: Row::label,
            has_spread: true,
        },
        Table {
            heading: "By flows, peers and MTU",
            shows: |row| [BY_FLOWS, BY_PEERS, BY_MTU].contains(&&row.scene[..]),
            corner: "",
            line: |row| match &row.scene[..] {
                BY_FLOWS => format!("{} TCP streams", row.place()),
                BY_PEERS => format!("{} peers, all but one idle", row.place()),
                _ => format!("MTU of {} bytes", row.place()),
            },
            column: Row::label,
            has_spread: true,
        },
        crowd::TABLE,
    ],
    plots: &PLOTS,
    legend: crowd::LEGEND,
};

#[rustfmt::skip]
const PLOTS: [Plot; 4] = [
    // A part of the cost is per packet, and a part per byte.
    Plot::new("growth_by_packet_size.svg", "How cost grows with the packet size", ("bytes of UDP payload", Linear), &[
        (BY_SIZE, "kpps", Linear),
        (BY_SIZE, "Gbit/s", Linear),
        (BY_SIZE, "CPU s/GB", Linear),
        (BY_SIZE, "CPU ns/packet", Linear),
    ]).with_range(),
    Plot::new("growth_by_flows.svg", "How cost grows with flows", ("TCP streams", Logarithmic), &[
        (BY_FLOWS, "Gbit/s", Linear),
        (BY_FLOWS, "CPU s/GB", Linear),
    ]).with_range(),
    Plot::new("growth_by_peers.svg", "How cost grows with peers", ("peers, all but one idle", Logarithmic), &[
        (BY_PEERS, "Gbit/s", Linear),
        (BY_PEERS, "CPU s/GB", Linear),
        (BY_PEERS, "MiB", Linear),
    ]).with_range(),
    Plot::new("growth_by_mtu.svg", "How cost grows with the MTU", ("MTU in bytes", Linear), &[
        (BY_MTU, "Gbit/s", Linear),
        (BY_MTU, "CPU s/GB", Linear),
    ]).with_range(),
];

/// The MTU and the peers of a tunnel, and the tests of the process that measures it, or [`BUSY`].
type Call = (u32, u32, &'static str);

/// All peers are busy, with each program.
const BUSY: &str = "busy";
/// All points; three rounds take about a quarter of an hour. The largest size is the largest that an MTU of 1,420 carries
/// unfragmented. 1,280 is the minimum MTU of IPv6, 8,920 fits Ethernet with frames of 9,000 bytes.
#[rustfmt::skip]
const FULL: [Call; 9] = [
    (TUNNEL_MTU, 1, "tcp-1,tcp-4,tcp-16,tcp-64,udp-64,udp-256,udp-512,udp-1024,udp-1200,udp-1392"),
    (TUNNEL_MTU, 100, "tcp-1"),
    (TUNNEL_MTU, 1_000, "tcp-1"),
    (TUNNEL_MTU, 10_000, "tcp-1"),
    (1_280, 1, "tcp-1"),
    (8_920, 1, "tcp-1,udp-4096,udp-8192"),
    (TUNNEL_MTU, 1, BUSY),
    (TUNNEL_MTU, 100, BUSY),
    (TUNNEL_MTU, 1_000, BUSY),
];
/// One or two points on each axis.
const QUICK: [Call; 4] = [
    (TUNNEL_MTU, 1, "tcp-1,tcp-4,udp-1200"),
    (TUNNEL_MTU, 100, "tcp-1"),
    (8_920, 1, "tcp-1"),
    (TUNNEL_MTU, 100, BUSY),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let version = first_line(Command::new(&args.convoy).arg("--version"))?;
    let other = contender::wireguard_go(&args.peers);
    let calls = if args.quick { &QUICK[..] } else { &FULL };
    let mut run = Run::new(vec![version]);
    let mut programs = vec![Contender::wireguard(CONVOY, &args.convoy)];
    if let Some(version) = other.version() {
        run.origin.versions.push(version);
        programs.push(other);
    } else {
        let note = format!("**Not measured: {}**", other.name);
        run.origin.notes.push(note);
    }
    // Any failure ends the run: with points missing, the others would not have been measured side by side.
    perform(interleaved(calls, args.rounds), |(round, call)| {
        let (mtu, peers, tests) = call;
        match tests {
            BUSY => {
                for program in rotated(&programs, round) {
                    crowd::measure(program, peers, round, &mut run)?;
                }
            }
            _ => measure(args, call, round, &mut run)?,
        }
        Ok(format!("MTU {mtu}, {peers} peers: {tests}"))
    })?;
    run.rows
        .sort_by_cached_key(|row| (row.scene.clone(), row.place() as u64));
    let named = args.out.as_ref().map(|out| out.join(SECTION.file));
    SECTION.keep(&run, named.as_deref(), !args.quick)
}

/// Runs the tests of a tunnel, and adds their rows.
fn measure(args: &Args, call: Call, round: u32, run: &mut Run) -> Result<()> {
    let ((mtu, peers, tests), secs) = (call, if args.quick { 1 } else { 2 });
    let options = format!("--mtu {mtu} --peers {peers} --secs {secs} --tests {tests}");
    let output = speedtest::output(&args.convoy, &options)?;
    let memory = output["peak_memory_bytes"].as_f64().unwrap_or_default();
    let places = |test| places(mtu, peers, test).map(move |place| (test, place));
    for (test, (scene, place)) in tests.split(',').flat_map(places) {
        let contender = match scene == BY_SIZE && mtu != TUNNEL_MTU {
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
    Ok(())
}

/// The scenes that a test in a tunnel belongs to, each with the place on its axis.
fn places(mtu: u32, peers: u32, test: &str) -> impl Iterator<Item = (&'static str, u32)> + use<> {
    let number = |kind| test.strip_prefix(kind)?.parse::<u32>().ok();
    let (is_usual, is_one) = (mtu == TUNNEL_MTU, test == "tcp-1");
    let places = [
        (BY_SIZE, number("udp-")),
        (BY_FLOWS, number("tcp-").filter(|_| is_usual && peers == 1)),
        (BY_PEERS, Some(peers).filter(|_| is_usual && is_one)),
        (BY_MTU, Some(mtu).filter(|_| peers == 1 && is_one)),
    ];
    let places = places.into_iter();
    places.filter_map(|(scene, place)| Some((scene, place?)))
}
