//! `make growth`: how the cost of a tunnel grows with the size of packets, with flows, peers and the MTU.
//!
//! The speed test measures every point, as a process. One process measures all tests in the same tunnel, one after
//! the other; a round runs every process once.

mod record;

use std::path::PathBuf;
use std::process::Command;

use crate::origin::{Origin, first_line_of};
use crate::results;
use crate::rounds::{Progress, rotated};
use crate::speedtest::Speedtest;
pub(crate) use record::Record;
use record::{Series, Tunnel, USUAL};

/// The result file.
pub(crate) const FILE: &str = "growth.json";

/// Measures how the cost of a tunnel grows, and writes every value and four plots
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program that is measured
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// Rounds, each with every point
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A few points, one round: shows that everything works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Where `growth.json` and the plots are put [default: benches/results; nowhere with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The tests of one process of the speed test, and their tunnel.
type Call = (Tunnel, &'static [&'static str]);

/// Everything, in about eight minutes with three rounds. The largest size is the one that an MTU of 1,420 takes
/// whole; 1,280 is the MTU of every IPv6 link, 8,920 that of Ethernet with frames of 9,000 bytes.
const FULL: [Call; 6] = [
    (
        USUAL,
        &[
            "tcp-1", "tcp-4", "tcp-16", "tcp-64", "udp-64", "udp-256", "udp-512", "udp-1024",
            "udp-1200", "udp-1392",
        ],
    ),
    (USUAL.with_peers(100), &["tcp-1"]),
    (USUAL.with_peers(1_000), &["tcp-1"]),
    (USUAL.with_peers(10_000), &["tcp-1"]),
    (USUAL.with_mtu(1_280), &["tcp-1"]),
    (USUAL.with_mtu(8_920), &["tcp-1", "udp-4096", "udp-8192"]),
];

/// A place or two on every axis.
const QUICK: [Call; 3] = [
    (USUAL, &["tcp-1", "tcp-4", "udp-1200"]),
    (USUAL.with_peers(100), &["tcp-1"]),
    (USUAL.with_mtu(8_920), &["tcp-1"]),
];

/// Measures, prints and writes.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let version = first_line_of(Command::new(&args.convoy).arg("--version"))?;
    let origin = Origin::of_this_run(vec![version]);
    let (calls, rounds, secs) = match args.quick {
        true => (&QUICK[..], 1, 1),
        false => (&FULL[..], args.rounds, 2),
    };
    let mut progress = Progress::of(calls.len() * rounds as usize);
    let series = measure(calls, rounds, |(Tunnel { mtu, peers }, tests)| {
        let options = format!("--mtu {mtu} --peers {peers} --secs {secs} --tests");
        let found = Speedtest::run(&args.convoy, &options, tests);
        progress.step(&format!("MTU {mtu}, peers {peers}: {}", tests.join(", ")));
        found
    })?;
    let record = Record {
        origin,
        rounds,
        secs,
        series,
    };
    let named = args.out.as_ref().map(|out| out.join(FILE));
    results::keep(&record, named.as_deref(), FILE, !args.quick)
}

/// Makes every call once a round. A call that fails ends it all: a record with holes would compare points that were
/// not measured under the same conditions.
fn measure(
    calls: &[Call],
    rounds: u32,
    mut run: impl FnMut(&Call) -> anyhow::Result<Speedtest>,
) -> anyhow::Result<Vec<Series>> {
    let mut runs: Vec<_> = calls.iter().map(|call| (call, Vec::new())).collect();
    for round in 0..rounds {
        for number in rotated(0..calls.len(), round) {
            let (call, found) = &mut runs[number];
            found.push(run(call)?);
        }
    }
    let series = runs.iter().flat_map(|((tunnel, tests), runs)| {
        let tests = tests.iter();
        tests.map(|test| Series::of(*tunnel, test, runs))
    });
    series.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn each_tunnel_is_measured_by_one_process_that_runs_one_stream_too() {
        for calls in [&FULL[..], &QUICK] {
            for (number, (tunnel, tests)) in calls.iter().enumerate() {
                assert!(calls[..number].iter().all(|(other, _)| other != tunnel));
                assert!(tests.contains(&"tcp-1"));
            }
        }
    }

    #[test]
    fn every_point_gets_a_value_of_each_round_in_a_rotating_order() {
        let mut value = 0;
        let series = measure(&QUICK, 2, |(_, tests)| {
            value += 1;
            let runs = tests
                .iter()
                .map(|test| json!({"name": test, "gbps": value}));
            Ok(from_value(json!({"runs": runs.collect::<Value>()})).unwrap())
        });
        let values = series
            .unwrap()
            .into_iter()
            .map(|it| it.gbps.unwrap().values);
        let expected = [[1.0, 6.0], [1.0, 6.0], [1.0, 6.0], [2.0, 4.0], [3.0, 5.0]];
        assert_eq!(values.collect::<Vec<_>>(), expected);
    }
}
