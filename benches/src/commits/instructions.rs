//! Counts the instructions of a stage with valgrind. The count is the same in every run of a program, even on a busy
//! machine.
//!
//! Callgrind counts from the call of `convoy_stages::measured` to its return, so a bench's preparation does not
//! count. Another framework for this (gungraun) would need a second copy of every stage.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use convoy_rows::row::{Row, Run};

use super::change::{BASE, HEAD, INSTRUCTIONS, scenes};
use super::tree::Tree;

/// `convoy_stages::measured`, whatever the compiler adds to its name.
const MEASURED: &str = "*convoy_stages*measured*";
/// Counted repetitions: enough that work done only the first time weighs little.
const REPETITIONS: u32 = 32;
/// Time limit in seconds. A stage whose preparation takes longer is left out; most need a fiftieth of it.
const PATIENCE: &str = "20";
/// Benches with several threads, whose waiting varies at random.
const BY_CHANCE: [&str; 2] = ["hand_over", "tunnels"];

/// Counts the instructions of every stage in both trees.
pub(super) fn count(head: &Tree, base: Option<&Tree>, run: &mut Run) -> anyhow::Result<()> {
    let version = Command::new("valgrind").arg("--version").output();
    if version.is_err() {
        eprintln!("no instruction counts without valgrind (fix: apt-get install valgrind)");
        return Ok(());
    }
    let scenes = scenes(run);
    for (number, scene) in (1..).zip(&scenes) {
        if BY_CHANCE.iter().any(|module| scene.contains(module)) {
            continue;
        }
        eprintln!("instructions: {number} of {}, {scene}", scenes.len());
        for (side, tree) in [(HEAD, Some(head)), (BASE, base)] {
            if let Some(count) = tree
                .map(|tree| of(&tree.stages, scene))
                .transpose()?
                .flatten()
            {
                run.push(Row::new(scene, side, INSTRUCTIONS, 0, count));
            }
        }
    }
    Ok(())
}

/// Instructions per repetition; `None` if the bench takes too long.
fn of(program: &Path, name: &str) -> anyhow::Result<Option<f64>> {
    let output = Command::new("timeout")
        .args(["--signal=KILL", PATIENCE, "valgrind", "--tool=callgrind"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(program)
        .args(["--bench", "--exact", name, "--sample-count", "1"])
        .args(["--sample-size", &REPETITIONS.to_string()])
        .stdout(Stdio::null())
        .output()
        .context("start timeout")?;
    let log = String::from_utf8_lossy(&output.stderr);
    Ok(collected(&log).map(|count| count / f64::from(REPETITIONS)))
}

/// Parses callgrind's sum: `==12== Collected : 345`.
fn collected(log: &str) -> Option<f64> {
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found_in_the_log() {
        let log = "==7== Callgrind, a call-graph profiler\n==7== Events    : Ir\n\
                   ==7== Collected : 59872\n==7== I   refs:      59,872\n";
        assert_eq!(collected(log), Some(59_872.0));
        assert_eq!(collected("valgrind: failed to start"), None);
    }
}
