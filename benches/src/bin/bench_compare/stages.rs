//! The stage benches of one or two trees, in turns.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::{
    compare::{Figure, Row},
    divan::{self, Timed},
    tree::Tree,
    turns::in_turns,
};

/// How they are run.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    pub(crate) rounds: u32,
    /// Most time of one bench in a round.
    pub(crate) secs: f64,
    pub(crate) filter: Option<String>,
}

/// Measures the base (or, without one, the head) against itself, then against the head.
pub(crate) fn measure(head: &Tree, base: Option<&Tree>, turns: &Turns) -> anyhow::Result<Vec<Row>> {
    let first = base.unwrap_or(head);
    let run_each = |what, programs: [&Path; 2]| {
        in_turns(turns.rounds, what, |side| run(programs[side], turns))
    };
    let noise = run_each("noise", [&first.stages; 2])?;
    let compared = match base {
        Some(base) => Some(run_each("comparison", [&base.stages, &head.stages])?),
        None => None,
    };
    let names = noise[0].first().map_or(&[][..], Vec::as_slice);
    let row = |timed: &Timed| {
        let values = |runs: &[Vec<Timed>]| values_of(&timed.name, runs);
        let itself = [values(&noise[0]), values(&noise[1])];
        let compared = compared
            .as_ref()
            .map(|[base, head]| [values(base), values(head)]);
        Row::new(timed.name.clone(), Figure::Nanoseconds, itself, compared)
    };
    let of_head = compared.iter().flat_map(|[_, head]| head.first()).flatten();
    let only_of_head = of_head.filter(|timed| names.iter().all(|known| known.name != timed.name));
    Ok(names.iter().chain(only_of_head).map(row).collect())
}

fn run(program: &Path, turns: &Turns) -> anyhow::Result<Vec<Timed>> {
    let output = Command::new(program)
        .args(["--bench", "--color", "never", "--max-time"])
        .arg(turns.secs.to_string())
        .args(&turns.filter)
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        program.display(),
        output.status
    );
    divan::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Round by round; empty where one side has no such bench.
fn values_of(name: &str, runs: &[Vec<Timed>]) -> Vec<f64> {
    let found = runs.iter().flatten().filter(|timed| timed.name == name);
    found.map(|timed| timed.nanoseconds).collect()
}
