//! The whole tunnel: TCP through two daemons, by the speed test of this tree.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::{
    compare::{Figure, Row},
    tree::Tree,
    turns::in_turns,
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
