//! How many instructions a stage takes, by valgrind: the same on every run of the same program, on a busy machine too.
//!
//! Callgrind counts between the call of `convoy_stages::measured` and its return, whatever the bench prepares. A
//! framework that does this itself (gungraun) would need the same stages a second time.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::change::Row;
use super::tree::Tree;

/// `convoy_stages::measured`, whatever the compiler puts around its name.
const MEASURED: &str = "*convoy_stages*measured*";
/// Repetitions that are counted: work of the first time only weighs little.
const REPETITIONS: u32 = 32;
/// A stage whose preparation takes longer, in seconds, is left out; a fiftieth of it is usual.
const PATIENCE: &str = "20";
/// Benches of several threads: their waiting is left to chance.
const BY_CHANCE: [&str; 2] = ["hand_over", "tunnels"];

/// Counts every row's instructions, in both trees.
pub(super) fn count(head: &Tree, base: Option<&Tree>, rows: &mut [Row]) -> anyhow::Result<()> {
    let version = Command::new("valgrind").arg("--version").output();
    if version.is_err() {
        eprintln!("no instructions are counted: no valgrind (fix: apt-get install valgrind)");
        return Ok(());
    }
    let total = rows.len();
    for (number, row) in rows.iter_mut().enumerate() {
        if BY_CHANCE.iter().any(|module| row.name.contains(module)) {
            continue;
        }
        eprintln!("instructions: {} of {total}, {}", number + 1, row.name);
        row.instructions.head = of(&head.stages, &row.name)?;
        if let Some(base) = base.filter(|_| row.compared.is_some()) {
            row.instructions.base = of(&base.stages, &row.name)?;
        }
    }
    Ok(())
}

/// Of one repetition; `None` where it takes too long.
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

/// Callgrind's sum: `==12== Collected : 345`.
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
