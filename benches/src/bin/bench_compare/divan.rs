//! What the stage benches print, read: divan writes for people only.
//!
//! ```text
//! stages           fastest       │ slowest       │ median        │ mean          │ samples │ iters
//! ├─ checksum                    │               │               │               │         │
//! │  ╰─ sum                      │               │               │               │         │
//! │     ╰─ 20      3.1 ns        │ 9.4 ns        │ 3.2 ns        │ 3.3 ns        │ 100     │ 51200
//! │                6.2 GB/s      │ 2.1 GB/s      │ 6.1 GB/s      │ 6.0 GB/s      │         │
//! ```

use anyhow::{Context as _, ensure};

/// What one bench took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timed {
    /// From the root, as divan filters by it: `stages::checksum::sum::20`.
    pub(crate) name: String,
    /// The median, in nanoseconds.
    pub(crate) nanoseconds: f64,
}

/// Which column is the median's.
const MEDIAN: usize = 2;
const BRANCHES: [&str; 2] = ["├─ ", "╰─ "];
const TRUNKS: [&str; 2] = ["│  ", "   "];

/// Reads a whole table.
///
/// # Errors
/// With the number of the line that is none of its lines.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Timed>> {
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
            timed.push(Timed {
                name: path.join("::"),
                nanoseconds,
            });
        }
    }
    ensure!(!timed.is_empty(), "the stage benches printed no figures");
    Ok(timed)
}

/// How deep in the tree a line is, and what stands there; `None` for a line of counters.
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
            .map(|timed| (timed.name.as_str(), timed.nanoseconds))
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
