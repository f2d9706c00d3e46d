//! The whole tunnel: TCP through two daemons, by the speed test of this tree.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::{
    compare::{Figure, Row},
    tree::Tree,
};

/// Counted seconds of a run.
const SECS: &str = "3";

/// What `convoy speedtest --json` prints, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Speedtest {
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
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
    let noise = in_turns(&generator, [&old, &old], rounds)?;
    let compared = in_turns(&generator, [&old, &generator], rounds)?;
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

/// Each daemon goes first in every other round.
fn in_turns(generator: &Path, daemons: [&Path; 2], rounds: u32) -> anyhow::Result<[Vec<Run>; 2]> {
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        eprintln!("tunnel: round {} of {rounds}", round + 1);
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            runs[side].push(run(generator, daemons[side])?);
        }
    }
    Ok(runs)
}

/// The generator is the same for both: only the daemon differs.
fn run(generator: &Path, daemon: &Path) -> anyhow::Result<Run> {
    let output = Command::new(generator)
        .args(["speedtest", "--json", "--tests", "tcp-up", "--secs", SECS])
        .arg("--daemon")
        .arg(daemon)
        .output()
        .with_context(|| format!("start {}", generator.display()))?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "speedtest: {}", reason.trim());
    let found: Speedtest = serde_json::from_slice(&output.stdout).context("speedtest --json")?;
    found
        .runs
        .first()
        .copied()
        .context("the speed test measured nothing")
}
