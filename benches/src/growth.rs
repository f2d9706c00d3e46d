//! `make growth`: how the cost of a tunnel grows with the size of packets, with flows, peers and the MTU.
//!
//! The speed test measures every point, as a process. One process measures all tests in the same tunnel, one
//! after the other; a round runs every process once.

pub(crate) mod record;

use std::path::PathBuf;
use std::process::Command;

use crate::origin::{Origin, first_line_of};
use crate::rounds::{Progress, rotated};
use crate::speedtest::Speedtest;
use crate::{plot, results};
use record::{AXES, LEGEND, Record, Series, Tunnel, USUAL};

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
type Call = (Tunnel, Vec<String>);

/// Measures, prints and writes.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let version = first_line_of(Command::new(&args.convoy).arg("--version"))?;
    let origin = Origin::of_this_run(vec![version]);
    let (calls, rounds, secs) = match args.quick {
        true => (quick(), 1, 1),
        false => (full(), args.rounds, 2),
    };
    let mut progress = Progress::of(calls.len() * rounds as usize);
    let series = measure(&calls, rounds, |call| {
        let found = Speedtest::run(&args.convoy, &arguments(call, secs));
        progress.step(&format!(
            "MTU {}, peers {}: {}",
            call.0.mtu,
            call.0.peers,
            call.1.join(", ")
        ));
        found
    })?;
    let record = Record {
        origin,
        rounds,
        secs,
        series,
    };
    for axis in &AXES {
        println!("{}\n\n{}", axis.title, record.table(axis));
    }
    println!("{LEGEND}");
    let named = args.out.as_ref().map(|out| out.join(FILE));
    if let Some(file) = results::file(named.as_deref(), FILE, !args.quick) {
        results::save(&record, &file)?;
        for axis in &AXES {
            let svg = plot::svg(&record.figure(axis))?;
            results::save_bytes(svg.as_bytes(), &file.with_file_name(axis.plot))?;
        }
    }
    Ok(())
}

/// Makes every call once a round. A call that fails ends it all: a record with holes would compare points
/// that were not measured under the same conditions.
fn measure(
    calls: &[Call],
    rounds: u32,
    mut run: impl FnMut(&Call) -> anyhow::Result<Speedtest>,
) -> anyhow::Result<Vec<Series>> {
    let mut found: Vec<Vec<Speedtest>> = calls.iter().map(|_| Vec::new()).collect();
    let numbers: Vec<_> = (0..calls.len()).collect();
    for round in 0..rounds {
        for &number in rotated(&numbers, round) {
            found[number].push(run(&calls[number])?);
        }
    }
    let series = calls
        .iter()
        .zip(&found)
        .flat_map(|((tunnel, tests), runs)| {
            tests
                .iter()
                .map(move |test| Series::of(*tunnel, test, runs))
        });
    series.collect()
}

/// Everything, in about eight minutes with three rounds. The largest size is what an MTU of 1,420 takes whole.
fn full() -> Vec<Call> {
    let sizes = tests("udp-", &[64, 256, 512, 1_024, 1_200, 1_392]);
    let one_stream = || tests("tcp-", &[1]);
    let mtu = |mtu| Tunnel { mtu, ..USUAL };
    let mut calls = vec![(USUAL, [tests("tcp-", &[1, 4, 16, 64]), sizes].concat())];
    calls.extend([100, 1_000, 10_000].map(|peers| (Tunnel { peers, ..USUAL }, one_stream())));
    // What every IPv6 link carries, and Ethernet with frames of 9,000 bytes.
    calls.push((mtu(1_280), one_stream()));
    calls.push((
        mtu(8_920),
        [one_stream(), tests("udp-", &[4_096, 8_192])].concat(),
    ));
    calls
}

/// A place or two on every axis.
fn quick() -> Vec<Call> {
    let (peers, mtu) = (
        Tunnel {
            peers: 100,
            ..USUAL
        },
        Tunnel {
            mtu: 8_920,
            ..USUAL
        },
    );
    let usual = [tests("tcp-", &[1, 4]), tests("udp-", &[1_200])].concat();
    vec![
        (USUAL, usual),
        (peers, tests("tcp-", &[1])),
        (mtu, tests("tcp-", &[1])),
    ]
}

fn tests(kind: &str, numbers: &[u32]) -> Vec<String> {
    numbers
        .iter()
        .map(|number| format!("{kind}{number}"))
        .collect()
}

/// The speed test's arguments.
fn arguments((Tunnel { mtu, peers }, tests): &Call, secs: u32) -> Vec<String> {
    let options = format!(
        "--mtu {mtu} --peers {peers} --secs {secs} --tests {}",
        tests.join(",")
    );
    options.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests_of_plan {
    use super::*;

    #[test]
    fn each_tunnel_is_measured_by_one_process_that_runs_one_stream_too() {
        for calls in [full(), quick()] {
            for (number, (tunnel, tests)) in calls.iter().enumerate() {
                assert!(calls[..number].iter().all(|(other, _)| other != tunnel));
                assert!(tests.contains(&"tcp-1".to_owned()));
            }
        }
        let last = arguments(full().last().unwrap(), 2).join(" ");
        assert_eq!(
            last,
            "--mtu 8920 --peers 1 --secs 2 --tests tcp-1,udp-4096,udp-8192"
        );
    }

    #[test]
    fn every_point_gets_a_value_of_each_round_in_a_rotating_order() {
        let mut value = 0;
        let series = measure(&quick(), 2, |(_, tests)| {
            value += 1;
            let runs = tests
                .iter()
                .map(|test| serde_json::json!({"name": test, "gbps": value}));
            let runs: Vec<_> = runs.collect();
            Ok(serde_json::from_value(serde_json::json!({"runs": runs})).unwrap())
        });
        let values = series
            .unwrap()
            .into_iter()
            .map(|series| series.gbps.unwrap().values);
        let expected = [[1.0, 6.0], [1.0, 6.0], [1.0, 6.0], [2.0, 4.0], [3.0, 5.0]];
        assert_eq!(values.collect::<Vec<_>>(), expected);
    }
}
