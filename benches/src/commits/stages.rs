//! Runs the stage benches of one or two trees in interleaved rounds, and counts their instructions with valgrind. This
//! count is the same in every run of a program, even on a busy machine.
//!
//! divan has no machine-readable output, so its table is parsed (the tests have an example).
//!
//! Callgrind counts from the call of `convoy_stages::measured` to its return, so a bench's preparation does not
//! count. Another framework for this (gungraun) would need a second copy of every stage.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use convoy_rows::row::{Row, Run};

use super::change::{AGAIN, BASE, HEAD, INSTRUCTIONS, TIME, scenes};
use super::tree::Tree;
use crate::programs;
use crate::rounds::{interleaved, perform};

const BRANCHES: [char; 2] = ['├', '╰'];
/// `convoy_stages::measured`, whatever the compiler adds to its name.
const MEASURED: &str = "*convoy_stages*measured*";
/// Counted repetitions: enough that work done only the first time weighs little.
const REPETITIONS: u32 = 32;
/// Time limit in seconds. A stage whose preparation takes longer is left out; most need a fiftieth of it.
const PATIENCE: &str = "20";
/// Benches with several threads, whose waiting varies at random.
const BY_CHANCE: [&str; 2] = ["hand_over", "tunnels"];

/// Measures the base (or the head, if there is no base) twice in each round, then the head; divan has these `options`.
pub(super) fn measure(
    head: &Tree,
    base: Option<&Tree>,
    rounds: u32,
    options: &[String],
    run: &mut Run,
) -> Result<()> {
    let first = base.unwrap_or(head);
    let mut sides = vec![(BASE, first), (AGAIN, first)];
    sides.extend(base.map(|_| (HEAD, head)));
    perform(interleaved(&sides, rounds), |(round, (side, tree))| {
        let mut stages = Command::new(&tree.stages);
        stages.args(["--bench", "--color", "never"]).args(options);
        for (name, nanoseconds) in parse(&programs::output(&mut stages)?)? {
            run.push(Row::new(&name, side, TIME, round, nanoseconds));
        }
        Ok("stages".to_owned())
    })
}

/// Parses the whole table: medians in nanoseconds, under the names by which divan filters (`stages::checksum::sum::20`).
/// An error names the line that cannot be parsed.
fn parse(text: &str) -> Result<Vec<(String, f64)>> {
    let mut path: Vec<&str> = Vec::new();
    let mut timed = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let is_of_counters = line.starts_with([' ', '│']) && !line.contains(BRANCHES);
        if line.is_empty() || is_of_counters {
            continue;
        }
        let rest = line.trim_start_matches([' ', '│', '├', '╰', '─']);
        // A trunk or a branch is three characters wide.
        let depth = (line.chars().count() - rest.chars().count()) / 3;
        let columns: Vec<_> = rest.split('│').map(str::trim).collect();
        let (name, _) = columns[0].split_once("  ").unwrap_or((columns[0], ""));
        path.truncate(depth);
        path.push(name);
        let median = columns.get(2).copied().unwrap_or_default();
        if depth > 0 && !median.is_empty() {
            let reason = || format!("line {number}: {median} is no duration");
            timed.push((path.join("::"), duration(median).with_context(reason)?));
        }
    }
    ensure!(!timed.is_empty(), "the stage benches printed no figures");
    Ok(timed)
}

/// Converts to nanoseconds.
fn duration(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 5] = [
        ("ps", 1e-3),
        ("ns", 1.0),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
    ];
    let (number, unit) = text.split_once(' ')?;
    let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * nanoseconds)
}

/// Counts the instructions of every stage in both trees.
pub(super) fn count_instructions(head: &Tree, base: Option<&Tree>, run: &mut Run) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("no instruction counts without valgrind (fix: apt-get install valgrind)");
        return Ok(());
    }
    let mut scenes = scenes(run);
    scenes.retain(|scene| !BY_CHANCE.iter().any(|module| scene.contains(module)));
    perform(scenes, |scene| {
        for (side, tree) in [(HEAD, Some(head)), (BASE, base)] {
            let count = tree.map(|tree| instructions(&tree.stages, &scene));
            if let Some(count) = count.transpose()?.flatten() {
                run.push(Row::new(&scene, side, INSTRUCTIONS, 0, count));
            }
        }
        Ok(format!("instructions: {scene}"))
    })
}

/// Instructions per repetition; `None` if the bench takes too long.
fn instructions(program: &Path, name: &str) -> Result<Option<f64>> {
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

    const TABLE: &str = "\
stages                       fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ checksum                                │               │               │               │         │
│  ╰─ sum                                  │               │               │               │         │
│     ├─ 20                  3.108 ns      │ 9.4 ns        │ 3.2 ns        │ 3.3 ns        │ 100     │ 51200
│     │                      6.434 GB/s    │ 2.1 GB/s      │ 6.1 GB/s      │ 6.0 GB/s      │         │
│     ╰─ 64                  5 ns          │ 9.4 ns        │ 6.25 ns       │ 7 ns          │ 100     │ 51200
╰─ path                                    │               │               │               │         │
   ├─ outbound               40.1 µs       │ 90.4 µs       │ 41.5 µs       │ 42 µs         │ 100     │ 100
   │                         1.147 Mitem/s │ 1.0 Mitem/s   │ 1.1 Mitem/s   │ 1.0 Mitem/s   │         │
   ╰─ inbound                1.2 ms        │ 90.4 µs       │ 1.25 ms       │ 42 µs         │ 100     │ 100
";

    #[test]
    fn every_leaf_has_its_path_and_its_median_and_a_figure_that_cannot_be_read_its_line() {
        let expected = [
            ("stages::checksum::sum::20", 3.2),
            ("stages::checksum::sum::64", 6.25),
            ("stages::path::outbound", 41_500.0),
            ("stages::path::inbound", 1_250_000.0),
        ];
        let expected = expected.map(|(name, time)| (name.to_owned(), time));
        assert_eq!(parse(TABLE).unwrap(), expected);
        let wrong = parse(&TABLE.replace("6.25 ns", "6.25 aeons"));
        let refusal = wrong.unwrap_err().to_string();
        assert_eq!(refusal, "line 6: 6.25 aeons is no duration");
        assert!(parse("").is_err());
    }

    #[test]
    fn the_sum_is_found_in_the_log() {
        let log = "==7== Callgrind, a call-graph profiler\n==7== Events    : Ir\n\
                   ==7== Collected : 59872\n==7== I   refs:      59,872\n";
        assert_eq!(collected(log), Some(59_872.0));
        assert_eq!(collected("valgrind: failed to start"), None);
    }
}
