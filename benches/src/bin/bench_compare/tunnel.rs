//! The whole tunnel: TCP and UDP through two daemons, by the speed test of this tree.

use std::path::Path;

use anyhow::Context as _;
use convoy_benches::speedtest::Speedtest;

use crate::{
    compare::{Figure, Row},
    tree::Tree,
    turns::in_turns,
};

/// Counted seconds of a TCP run.
const SECS: &str = "3";

/// As the speed test calls them, and for people. The rate of UDP is the highest with at most 1 % loss.
const TESTS: [(&str, &str); 2] = [("tcp-up", "TCP up"), ("udp-1200", "UDP 1,200 B")];

#[derive(Clone, Copy, Debug)]
struct Run {
    gbps: f64,
    cpu_s_per_gb: f64,
}

/// One of each test.
type Runs = [Run; TESTS.len()];

/// Throughput and CPU time: the base against itself, then against the head.
pub(crate) fn measure(head: &Tree, base: &Tree, rounds: u32) -> anyhow::Result<Vec<Row>> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: the tunnel is not measured");
        return Ok(Vec::new());
    }
    let program = |tree: &'_ Tree| tree.convoy.clone().context("the daemon was not built");
    let (generator, old) = (program(head)?, program(base)?);
    let run_each =
        |what, daemons: [&Path; 2]| in_turns(rounds, what, |side| run(&generator, daemons[side]));
    let noise = run_each("tunnel, noise", [&old, &old])?;
    let compared = run_each("tunnel, comparison", [&old, &generator])?;
    let row = |test: usize, name: &str, figure, value: fn(&Run) -> f64| {
        let of_test = |runs: &Runs| value(&runs[test]);
        let values = |runs: &[Vec<Runs>; 2]| {
            runs.each_ref()
                .map(|runs| runs.iter().map(of_test).collect::<Vec<_>>())
        };
        let name = format!("tunnel, {}{name}", TESTS[test].1);
        Row::new(name, figure, values(&noise), Some(values(&compared)))
    };
    let rows = (0..TESTS.len()).flat_map(|test| {
        let cpu_s_per_gb = |run: &Run| run.cpu_s_per_gb;
        [
            row(test, "", Figure::GigabitsPerSecond, |run| run.gbps),
            row(test, ", CPU", Figure::CpuSecondsPerGigabyte, cpu_s_per_gb),
        ]
    });
    Ok(rows.collect())
}

/// The generator is the same for both: only the daemon differs.
fn run(generator: &Path, daemon: &Path) -> anyhow::Result<Runs> {
    let daemon = daemon.to_str().context("a path that is no text")?;
    let tests = TESTS.map(|(test, _)| test);
    let asked = tests.join(",");
    let arguments = ["--tests", &asked, "--secs", SECS, "--daemon", daemon];
    let found = Speedtest::run(generator, arguments)?;
    let run = |test| {
        let run = found.of(test)?;
        let (gbps, cpu_s_per_gb) = run.gbps.zip(run.cpu_s_per_gb).context("no figures")?;
        anyhow::Ok(Run { gbps, cpu_s_per_gb })
    };
    let [tcp, udp] = tests.map(run);
    Ok([tcp?, udp?])
}
