//! How many instructions a stage takes, by valgrind: the same on every run of the same program, on a
//! busy machine too.
//!
//! Callgrind counts between the call of `convoy_stages::measured` and its return, whatever the bench prepares. A
//! framework that does this itself (gungraun) would need the same stages a second time.

use std::{
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::change::Row;
use super::tree::Tree;

/// `convoy_stages::measured`, whatever the compiler puts around its name.
const MEASURED: &str = "*convoy_stages*measured*";
/// Repetitions that are counted: work of the first time only weighs little.
const REPETITIONS: u64 = 32;
/// A stage whose preparation takes longer is left out; a fiftieth of it is usual.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
/// Benches of several threads: their waiting is left to chance.
const BY_CHANCE: [&str; 2] = ["hand_over", "tunnels"];

/// Counts every row's instructions, in both trees.
pub(super) fn count(head: &Tree, base: Option<&Tree>, rows: &mut [Row]) -> anyhow::Result<()> {
    let version = Command::new("valgrind").arg("--version").output();
    if version.is_err() {
        eprintln!(
            "no instructions are counted: valgrind is not there (fix: apt-get install valgrind)"
        );
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
    let repetitions = REPETITIONS.to_string();
    let mut child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(program)
        .args(["--bench", "--exact", name, "--sample-count", "1"])
        .args(["--sample-size", &repetitions])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("start valgrind")?;
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
    let mut log = String::new();
    // A few lines: they have waited in the pipe.
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut log)?;
    }
    Ok(collected(&log).map(|count| count as f64 / REPETITIONS as f64))
}

/// Callgrind's sum: `==12== Collected : 345`.
fn collected(log: &str) -> Option<u64> {
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
        assert_eq!(collected(log), Some(59_872));
        assert_eq!(collected("valgrind: failed to start"), None);
    }
}
