//! Runs the stage benches of one or two trees in interleaved rounds.
//!
//! divan has no machine-readable output, so its table is parsed:
//!
//! ```text
//! stages           fastest       │ slowest       │ median        │ mean          │ samples │ iters
//! ├─ checksum                    │               │               │               │         │
//! │  ╰─ sum                      │               │               │               │         │
//! │     ╰─ 20      3.1 ns        │ 9.4 ns        │ 3.2 ns        │ 3.3 ns        │ 100     │ 51200
//! │                6.2 GB/s      │ 2.1 GB/s      │ 6.1 GB/s      │ 6.0 GB/s      │         │
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::Args;
use super::change::Row;
use super::tree::Tree;
use crate::programs;
use crate::rounds::{Progress, rotated};

/// The median of a bench in nanoseconds, under the name by which divan filters: `stages::checksum::sum::20`.
type Timed = (String, f64);

/// The column of the median.
const MEDIAN: usize = 2;
const BRANCHES: [char; 2] = ['├', '╰'];

/// Measures the base (or the head, if there is no base) twice in each round, then the head.
pub(super) fn measure(head: &Tree, base: Option<&Tree>, args: &Args) -> anyhow::Result<Vec<Row>> {
    let first = base.unwrap_or(head);
    let trees = [Some(first), Some(first), base.map(|_| head)];
    let programs = trees.into_iter().flatten().map(|tree| &tree.stages);
    let programs: Vec<_> = programs.collect();
    let mut progress = Progress::of(args.rounds() as usize * programs.len());
    let mut found: Vec<(String, [Vec<f64>; 3])> = Vec::new();
    for round in 0..args.rounds() {
        for side in rotated(0..programs.len(), round) {
            for (name, nanoseconds) in run(programs[side], args)? {
                let known = found.iter().position(|(known, _)| *known == name);
                let at = known.unwrap_or_else(|| {
                    found.push((name, Default::default()));
                    found.len() - 1
                });
                found[at].1[side].push(nanoseconds);
            }
            progress.step("stages");
        }
    }
    let rows = found.into_iter();
    Ok(rows
        .map(|(name, [a, b, head])| Row::new(name, [a, b], head))
        .collect())
}

fn run(program: &Path, args: &Args) -> anyhow::Result<Vec<Timed>> {
    let secs = if args.quick { 0.01 } else { args.stage_secs };
    let mut stages = Command::new(program);
    stages.args(["--bench", "--color", "never", "--max-time"]);
    stages.arg(secs.to_string()).args(&args.filter);
    parse(&programs::output(&mut stages)?)
}

/// Parses the whole table; an error names the line that cannot be parsed.
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

/// The depth of a line in the tree, and its text; `None` for a line of counters.
fn node(line: &str) -> Option<(usize, &str)> {
    if !line.starts_with([' ', '│', '├', '╰']) {
        return (!line.is_empty()).then_some((0, line));
    }
    let at = line.find(BRANCHES)?;
    // A trunk or a branch is three characters wide.
    let depth = line[..at].chars().count() / 3 + 1;
    Some((
        depth,
        line[at..].trim_start_matches([BRANCHES[0], BRANCHES[1], '─', ' ']),
    ))
}

/// Converts to nanoseconds.
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
        let expected = [
            ("stages::checksum::sum::20", 3.2),
            ("stages::checksum::sum::64", 6.25),
            ("stages::path::outbound", 41_500.0),
            ("stages::path::inbound", 1_250_000.0),
        ];
        let expected = expected.map(|(name, time)| (name.to_owned(), time));
        assert_eq!(parse(TABLE).unwrap(), expected);
    }

    #[test]
    fn a_figure_that_cannot_be_read_is_refused_with_its_line() {
        let wrong = TABLE.replace("6.25 ns", "6.25 aeons");
        let refusal = parse(&wrong).unwrap_err().to_string();
        assert_eq!(refusal, "line 6: 6.25 aeons is no duration");
        assert!(parse("").is_err());
    }
}
