//! `perf stat`: what the processor and the scheduler count.

use std::collections::BTreeMap;

use convoy_lab::Pid;
use serde::{Deserialize, Serialize};

use crate::{
    ProfileError,
    attach::Attachment,
    directory::Directory,
    record::{has_events, list},
    samples::plain_event,
    tools,
};

/// What `perf` writes, one JSON object a line.
const RAW: &str = "stat.txt";
/// What is kept of it.
pub(crate) const FILE: &str = "stat.json";
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,cycles,instructions,\
                      cache-references,cache-misses,branches,branch-misses";
/// Those of them that the scheduler counts.
const SCHEDULING: [&str; 2] = ["context-switches", "cpu-migrations"];

/// The counters of all threads together. What the machine does not count is `null`, never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Stat {
    /// CPU time.
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) context_switches: Option<f64>,
    pub(crate) migrations: Option<f64>,
    pub(crate) cycles: Option<f64>,
    pub(crate) instructions: Option<f64>,
    /// Instructions a cycle.
    pub(crate) ipc: Option<f64>,
    pub(crate) cache_references: Option<f64>,
    pub(crate) cache_misses: Option<f64>,
    pub(crate) branches: Option<f64>,
    pub(crate) branch_misses: Option<f64>,
}

pub(crate) fn attach(directory: &Directory, pids: &[Pid]) -> Result<Attachment, ProfileError> {
    let mut command = tools::command("perf");
    command.args([
        "stat",
        "-j",
        "--event",
        EVENTS,
        "--pid",
        &list(pids),
        "--output",
    ]);
    command.arg(directory.file(RAW));
    Attachment::start(
        directory.at_work(),
        "perf stat -j",
        command,
        pids,
        has_events,
    )
}

/// Reads what `perf` wrote, and writes what is kept.
pub(crate) fn write(directory: &Directory) -> Result<Stat, ProfileError> {
    let stat = Stat::read(&directory.read(RAW)?)?;
    let json = serde_json::to_string_pretty(&stat).unwrap_or_default() + "\n";
    directory.write(FILE, json.as_bytes())?;
    directory.remove(RAW)?;
    Ok(stat)
}

impl Stat {
    fn read(text: &str) -> Result<Self, ProfileError> {
        let mut counted: BTreeMap<&str, f64> = BTreeMap::new();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('{')).collect();
        let counters = lines.iter().map(|line| {
            let counter = serde_json::from_str::<Counter<'_>>(line);
            counter.map_err(|_| not_understood(line))
        });
        for counter in counters {
            let counter = counter?;
            let event = plain_event(counter.event);
            // These happen in the kernel: who may count only his own code is told zero.
            let is_hidden = SCHEDULING.contains(&event) && counter.event.ends_with(":u");
            // A kind of core that ran nothing has counted nothing; others may have.
            let value = counter.value.parse::<f64>().ok().filter(|_| !is_hidden);
            if let Some(value) = value {
                *counted.entry(event).or_default() += value;
            }
        }
        let value = |event| counted.get(event).copied();
        let (cycles, instructions) = (value("cycles"), value("instructions"));
        let running = cycles.filter(|&cycles| cycles > 0.0);
        Ok(Self {
            cpu_seconds: value("task-clock").map(|milliseconds| milliseconds / 1e3),
            context_switches: value("context-switches"),
            migrations: value("cpu-migrations"),
            cycles,
            instructions,
            ipc: instructions
                .zip(running)
                .map(|(count, cycles)| count / cycles),
            cache_references: value("cache-references"),
            cache_misses: value("cache-misses"),
            branches: value("branches"),
            branch_misses: value("branch-misses"),
        })
    }
}

/// One line of `perf stat -j`.
#[derive(Debug, Deserialize)]
struct Counter<'a> {
    event: &'a str,
    /// A number, or `<not supported>` and the like.
    #[serde(rename = "counter-value")]
    value: &'a str,
}

fn not_understood(line: &str) -> ProfileError {
    ProfileError::Output {
        program: "perf stat -j",
        line: line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, value: &str) -> String {
        format!("{{\"counter-value\" : \"{value}\", \"unit\" : \"\", \"event\" : \"{event}\"}}\n")
    }

    #[test]
    fn what_is_not_counted_is_null_and_never_zero() {
        let text = "# started on …\n\n".to_owned()
            + &line("cycles", "<not supported>")
            + &line("instructions", "<not counted>")
            + &line("task-clock", "1500.5")
            + &line("context-switches:u", "0.000000")
            + &line("cpu-migrations", "0.000000");
        let stat = Stat::read(&text).unwrap();
        assert_eq!(stat.cpu_seconds, Some(1.5005));
        assert_eq!(stat.migrations, Some(0.0));
        let json = serde_json::to_value(&stat).unwrap();
        for absent in [
            "cycles",
            "instructions",
            "ipc",
            "context_switches",
            "cache_misses",
            "branch_misses",
        ] {
            assert!(json[absent].is_null(), "{absent}");
        }
    }

    #[test]
    fn kinds_of_cores_are_summed_and_one_that_ran_nothing_is_left_out() {
        let text = line("cpu_core/cycles/", "300.0")
            + &line("cpu_atom/cycles/", "100.0")
            + &line("cpu_core/instructions/u", "800.0")
            + &line("cpu_atom/instructions/u", "<not counted>");
        let stat = Stat::read(&text).unwrap();
        assert_eq!((stat.cycles, stat.instructions), (Some(400.0), Some(800.0)));
        assert_eq!(stat.ipc, Some(2.0));
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        let error = Stat::read("{\"counter-value\" : 1")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "what perf stat -j wrote is not understood: {\"counter-value\" : 1"
        );
    }
}
