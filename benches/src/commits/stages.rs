//! The stage benches of one or two trees, in interleaved rounds.
//!
//! divan writes for people only, so its table is parsed:
//!
//! ```text
//! stages           fastest       │ slowest       │ median        │ mean          │ samples │ iters
//! ├─ checksum                    │               │               │               │         │
//! │  ╰─ sum                      │               │               │               │         │
//! │     ╰─ 20      3.1 ns        │ 9.4 ns        │ 3.2 ns        │ 3.3 ns        │ 100     │ 51200
//! │                6.2 GB/s      │ 2.1 GB/s      │ 6.1 GB/s      │ 6.0 GB/s      │         │
//! ```

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::Args;
use super::change::Row;
use super::tree::Tree;
use crate::rounds::{Progress, rotated};

/// The median of a bench, in nanoseconds, by its name as divan filters by it: `stages::checksum::sum::20`.
type Timed = (String, f64);

/// The column of the median.
const MEDIAN: usize = 2;
const BRANCHES: [&str; 2] = ["├─ ", "╰─ "];
const TRUNKS: [&str; 2] = ["│  ", "   "];

/// Measures the base (or, without one, the head) twice in each round, and the head.
pub(super) fn measure(head: &Tree, base: Option<&Tree>, args: &Args) -> anyhow::Result<Vec<Row>> {
    let first = base.unwrap_or(head);
    let programs = [Some(first), Some(first), base.map(|_| head)];
    let programs: Vec<&Path> = programs
        .into_iter()
        .flatten()
        .map(|tree| tree.stages.as_path())
        .collect();
    let order: Vec<usize> = (0..programs.len()).collect();
    let mut runs: Vec<Vec<Timed>> = vec![Vec::new(); programs.len()];
    let mut progress = Progress::of(args.rounds() as usize * programs.len());
    let mut names: Vec<String> = Vec::new();
    for round in 0..args.rounds() {
        for &side in rotated(&order, round) {
            let timed = run(programs[side], args)?;
            for (name, _) in &timed {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            runs[side].extend(timed);
            progress.step("stages");
        }
    }
    let values = |side: &Vec<Timed>, name: &String| {
        let own = side.iter().filter(|(found, _)| found == name);
        own.map(|(_, nanoseconds)| *nanoseconds).collect::<Vec<_>>()
    };
    let row = |name: String| {
        let itself = [values(&runs[0], &name), values(&runs[1], &name)];
        let head = runs.get(2).map(|side| values(side, &name));
        Row::new(name, itself, head)
    };
    Ok(names.into_iter().map(row).collect())
}

fn run(program: &Path, args: &Args) -> anyhow::Result<Vec<Timed>> {
    let secs = if args.quick { 0.01 } else { args.stage_secs };
    let output = Command::new(program)
        .args([
            "--bench",
            "--color",
            "never",
            "--max-time",
            &secs.to_string(),
        ])
        .args(&args.filter)
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        program.display(),
        output.status
    );
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads a whole table; the error has the number of the line that cannot be read.
fn parse(text: &str) -> anyhow::Result<Vec<Timed>> {
    let mut path: Vec<String> = Vec::new();
    let mut timed = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((depth, rest)) = node(line) else {
            continue;
        };
        let mut columns = rest.split('│').map(str::trim);
        let first = columns.next().unwrap_or_default();
        let (name, _) = first.split_once("  ").unwrap_or((first, ""));
        path.truncate(depth);
        path.push(name.to_owned());
        let median = columns.nth(MEDIAN - 1).unwrap_or_default();
        if depth > 0 && !median.is_empty() {
            let nanoseconds = duration(median)
                .with_context(|| format!("line {}: {median} is no duration", number + 1))?;
            timed.push((path.join("::"), nanoseconds));
        }
    }
    ensure!(!timed.is_empty(), "the stage benches printed no figures");
    Ok(timed)
}

/// The depth of a line in the tree, and its text; none for a line of counters.
fn node(line: &str) -> Option<(usize, &str)> {
    if line.is_empty() {
        return None;
    }
    if !line.starts_with([' ', '│', '├', '╰']) {
        return Some((0, line));
    }
    let mut depth = 1;
    let mut rest = line;
    loop {
        if let Some(name) = BRANCHES.iter().find_map(|branch| rest.strip_prefix(branch)) {
            return Some((depth, name));
        }
        rest = TRUNKS.iter().find_map(|trunk| rest.strip_prefix(trunk))?;
        depth += 1;
    }
}

/// In nanoseconds.
fn duration(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let nanoseconds = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * nanoseconds)
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
    fn every_leaf_has_its_path_and_its_median_in_nanoseconds() {
        let timed = parse(TABLE).unwrap();
        let expected = [
            ("stages::checksum::sum::20", 3.2),
            ("stages::checksum::sum::64", 6.25),
            ("stages::path::outbound", 41_500.0),
            ("stages::path::inbound", 1_250_000.0),
        ];
        let found: Vec<_> = timed
            .iter()
            .map(|(name, time)| (&name[..], *time))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_figure_that_cannot_be_read_is_refused_with_its_line() {
        let wrong = TABLE.replace("6.25 ns", "6.25 aeons");
        let refusal = parse(&wrong).unwrap_err().to_string();
        assert_eq!(refusal, "line 6: 6.25 aeons is no duration");
        assert!(parse("").is_err());
    }
}
