//! The whole tunnel: TCP through two daemons, by the speed test of this tree.

use std::path::Path;

use anyhow::Context as _;
use convoy_benches::speedtest::Speedtest;

use crate::{
    compare::{Figure, Row},
    tree::Tree,
    turns::in_turns,
};

/// Counted seconds of a run.
const SECS: &str = "3";

const TEST: &str = "tcp-up";

#[derive(Clone, Copy, Debug)]
struct Run {
    gbps: f64,
    cpu_s_per_gb: f64,
}

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
    let row = |name: &str, figure, value: fn(&Run) -> f64| {
        let values = |runs: &[Vec<Run>; 2]| {
            runs.each_ref()
                .map(|runs| runs.iter().map(value).collect::<Vec<_>>())
        };
        Row::new(
            name.to_owned(),
            figure,
            values(&noise),
            Some(values(&compared)),
        )
    };
    Ok(vec![
        row("tunnel, TCP up", Figure::GigabitsPerSecond, |run| run.gbps),
        row("tunnel, CPU time", Figure::CpuSecondsPerGigabyte, |run| {
            run.cpu_s_per_gb
        }),
    ])
}

/// The generator is the same for both: only the daemon differs.
fn run(generator: &Path, daemon: &Path) -> anyhow::Result<Run> {
    let daemon = daemon.to_str().context("a path that is no text")?;
    let arguments = ["--tests", TEST, "--secs", SECS, "--daemon", daemon];
    let found = Speedtest::run(generator, arguments)?;
    let run = found.of(TEST)?;
    let (gbps, cpu_s_per_gb) = run.gbps.zip(run.cpu_s_per_gb).context("no figures")?;
    Ok(Run { gbps, cpu_s_per_gb })
}
