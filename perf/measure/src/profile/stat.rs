//! `perf stat`: counters of the processor and the scheduler.

use std::{collections::BTreeMap, process::Command};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::stacks::plain_event;
use super::tool::{self, Subject, Tool};

pub(super) const NAME: &str = "perf stat -j";
pub(super) const TOOL: Tool = Tool {
    name: NAME,
    progress: "counting (perf stat)",
    command,
    is_attached: tool::has_confirmed,
};
/// Written by `perf`: one JSON object per line.
const RAW: &str = "stat.txt";
pub(super) const FILE: &str = "stat.json";
/// Names of the events in `perf` and in the file, and how many of the first are one of the second: `perf` counts
/// milliseconds.
const EVENTS: [(&str, &str, f64); 9] = [
    ("task-clock", "cpu_seconds", 1e3),
    ("context-switches", "context_switches", 1.0),
    ("cpu-migrations", "migrations", 1.0),
    ("cycles", "cycles", 1.0),
    ("instructions", "instructions", 1.0),
    ("cache-references", "cache_references", 1.0),
    ("cache-misses", "cache_misses", 1.0),
    ("branches", "branches", 1.0),
    ("branch-misses", "branch_misses", 1.0),
];
/// The scheduler's events.
const SCHEDULING: [&str; 2] = ["context-switches", "cpu-migrations"];

/// The counters of all threads together. A counter that the machine does not have is `null`, never zero.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Stat(BTreeMap<&'static str, Option<f64>>);

fn command(subject: &Subject) -> Result<Command> {
    let events = EVENTS.map(|(event, ..)| event).join(",");
    let arguments = ["stat", "-j", "--event", &events];
    Ok(tool::perf(subject, &arguments, RAW))
}

/// Parses the output of `perf`, and writes [`FILE`].
pub(super) fn read(directory: &Directory) -> Result<Stat> {
    let stat = Stat::read(&directory.take(RAW)?)?;
    directory.write_json(FILE, &stat)?;
    Ok(stat)
}

/// One line of `perf stat -j`.
#[derive(Debug, Deserialize)]
struct Counter<'a> {
    event: &'a str,
    /// A number, or `<not supported>` and the like.
    #[serde(rename = "counter-value")]
    value: &'a str,
}

impl Stat {
    fn read(text: &str) -> Result<Self> {
        let mut counted: BTreeMap<&str, f64> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let counter = serde_json::from_str(line);
            let counter: Counter<'_> = counter.map_err(|_| tool::unreadable(&TOOL, line))?;
            let event = plain_event(counter.event);
            // The scheduler's events happen in the kernel, so a count of user code alone is always zero.
            let is_hidden = SCHEDULING.contains(&event) && counter.event.ends_with(":u");
            // A kind of core that ran nothing has counted nothing; others may have.
            if let (Ok(value), false) = (counter.value.parse::<f64>(), is_hidden) {
                *counted.entry(event).or_default() += value;
            }
        }
        let named = EVENTS.map(|(event, name, unit)| {
            let count = counted.get(event);
            (name, count.map(|count| count / unit))
        });
        let mut stat = Self(BTreeMap::from(named));
        stat.0.insert("ipc", stat.ratio("instructions", "cycles"));
        Ok(stat)
    }

    pub(super) fn of(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied().flatten()
    }

    /// `None` if a value is unknown or the divisor is zero.
    pub(super) fn ratio(&self, part: &str, whole: &str) -> Option<f64> {
        let whole = self.of(whole).filter(|&whole| whole > 0.0)?;
        Some(self.of(part)? / whole)
    }
}

#[cfg(test)]
impl Stat {
    pub(super) fn of_counts<const N: usize>(counts: [(&'static str, f64); N]) -> Self {
        Self(counts.map(|(name, count)| (name, Some(count))).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_the_machine_lacks_is_null_and_kinds_of_cores_are_summed() {
        let counters = [
            ("task-clock", "1500.5"),
            ("cpu_core/cycles/", "300.0"),
            ("cpu_atom/cycles/", "100.0"),
            ("cpu_core/instructions/u", "800.0"),
            ("cpu_atom/instructions/u", "<not counted>"),
            ("cache-misses", "<not supported>"),
            ("context-switches:u", "0.000000"),
            ("cpu-migrations", "0.000000"),
        ];
        let lines = counters.map(|(event, value)| {
            let object = serde_json::json!({"counter-value": value, "unit": "", "event": event});
            format!("{object}\n")
        });
        let stat = Stat::read(&("# started on …\n\n".to_owned() + &lines.concat())).unwrap();
        for (name, count) in [
            ("cpu_seconds", Some(1.5005)),
            ("cycles", Some(400.0)),
            ("instructions", Some(800.0)),
            ("ipc", Some(2.0)),
            ("cache_misses", None),
            ("context_switches", None),
            ("migrations", Some(0.0)),
        ] {
            assert_eq!(stat.of(name), count, "{name}");
        }
        assert!(serde_json::to_value(&stat).unwrap()["cache_misses"].is_null());
        let cut = "{\"counter-value\" : 1";
        let error = Stat::read(cut).unwrap_err().to_string();
        assert!(error.ends_with(cut), "{error}");
    }
}
