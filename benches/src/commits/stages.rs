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
use convoy_rows::row::{Row, Run};

use super::change::{AGAIN, BASE, HEAD, TIME};
use super::tree::Tree;
use crate::programs;
use crate::rounds::{Progress, rotated};

/// The stages to measure, and the time for them.
pub(super) struct Effort {
    pub(super) rounds: u32,
    /// At most this many seconds per stage and round.
    pub(super) secs: f64,
    /// Only stages whose names match.
    pub(super) filter: Option<String>,
}

/// The median of a bench in nanoseconds, under the name by which divan filters: `stages::checksum::sum::20`.
type Timed = (String, f64);

/// The column of the median.
const MEDIAN: usize = 2;
const BRANCHES: [char; 2] = ['├', '╰'];

/// Measures the base (or the head, if there is no base) twice in each round, then the head.
pub(super) fn measure(
    head: &Tree,
    base: Option<&Tree>,
    effort: &Effort,
    run: &mut Run,
) -> anyhow::Result<()> {
    let first = base.unwrap_or(head);
    let trees = [
        (BASE, Some(first)),
        (AGAIN, Some(first)),
        (HEAD, base.map(|_| head)),
    ];
    let sides = trees.into_iter();
    let sides: Vec<_> = sides
        .filter_map(|(side, tree)| Some((side, tree?)))
        .collect();
    let mut progress = Progress::of(effort.rounds as usize * sides.len());
    for round in 0..effort.rounds {
        for (side, tree) in rotated(sides.iter().copied(), round) {
            for (name, nanoseconds) in timed(&tree.stages, effort)? {
                run.push(Row::new(&name, side, TIME, round, nanoseconds));
            }
            progress.step("stages");
        }
    }
    Ok(())
}

fn timed(program: &Path, effort: &Effort) -> anyhow::Result<Vec<Timed>> {
    let mut stages = Command::new(program);
    stages.args(["--bench", "--color", "never", "--max-time"]);
    stages.arg(effort.secs.to_string()).args(&effort.filter);
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
