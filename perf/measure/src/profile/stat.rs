//! `perf stat`: the counters of the processor and of the scheduler.

use std::collections::BTreeMap;

use convoy_lab::Pid;
use serde::{Deserialize, Serialize};

use super::{
    attach::Attachment,
    directory::Directory,
    record::{has_events, list},
    stacks::plain_event,
    tools,
};
use crate::Error;

/// Written by `perf`, one JSON object a line.
const RAW: &str = "stat.txt";
pub(super) const FILE: &str = "stat.json";
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,cycles,instructions,\
                      cache-references,cache-misses,branches,branch-misses";
/// The scheduler's events.
const SCHEDULING: [&str; 2] = ["context-switches", "cpu-migrations"];

/// The counters of all threads together. One that the machine does not have is `null`, never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Stat {
    /// CPU time.
    pub(super) cpu_seconds: Option<f64>,
    pub(super) context_switches: Option<f64>,
    pub(super) migrations: Option<f64>,
    pub(super) cycles: Option<f64>,
    pub(super) instructions: Option<f64>,
    /// Instructions a cycle.
    pub(super) ipc: Option<f64>,
    pub(super) cache_references: Option<f64>,
    pub(super) cache_misses: Option<f64>,
    pub(super) branches: Option<f64>,
    pub(super) branch_misses: Option<f64>,
}

pub(super) fn attach(directory: &Directory, pids: &[Pid]) -> Result<Attachment, Error> {
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
        directory.unfinished(),
        "perf stat -j",
        command,
        pids,
        has_events,
    )
}

/// Reads the output of `perf`, and writes [`FILE`].
pub(super) fn write(directory: &Directory) -> Result<Stat, Error> {
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
    fn read(text: &str) -> Result<Self, Error> {
        let mut counted: BTreeMap<&str, f64> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let counter: Counter<'_> = serde_json::from_str(line).map_err(|_| Error::Output {
                program: "perf stat -j",
                line: line.to_owned(),
            })?;
            let event = plain_event(counter.event);
            // The scheduler's events happen in the kernel: a user who may count only his own code gets zero.
            let is_hidden = SCHEDULING.contains(&event) && counter.event.ends_with(":u");
            // A kind of core that ran nothing has counted nothing; others may have.
            if let (Ok(value), false) = (counter.value.parse::<f64>(), is_hidden) {
                *counted.entry(event).or_default() += value;
            }
        }
        let value = |event| counted.get(event).copied();
        Ok(Self {
            cpu_seconds: value("task-clock").map(|milliseconds| milliseconds / 1e3),
            context_switches: value("context-switches"),
            migrations: value("cpu-migrations"),
            cycles: value("cycles"),
            instructions: value("instructions"),
            ipc: ratio(value("instructions"), value("cycles")),
            cache_references: value("cache-references"),
            cache_misses: value("cache-misses"),
            branches: value("branches"),
            branch_misses: value("branch-misses"),
        })
    }
}

/// None where one is not known, or there is nothing to divide by.
pub(super) fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|&whole| whole > 0.0);
    part.zip(whole).map(|(part, whole)| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, value: &str) -> String {
        format!("{{\"counter-value\" : \"{value}\", \"unit\" : \"\", \"event\" : \"{event}\"}}\n")
    }

    #[test]
    fn a_counter_that_the_machine_lacks_is_null_and_never_zero() {
        let text = "# started on …\n\n".to_owned()
            + &line("cycles", "<not supported>")
            + &line("task-clock", "1500.5")
            + &line("context-switches:u", "0.000000")
            + &line("cpu-migrations", "0.000000");
        let stat = Stat::read(&text).unwrap();
        let expected = Stat {
            cpu_seconds: Some(1.5005),
            migrations: Some(0.0),
            ..Stat::default()
        };
        assert_eq!(stat, expected);
        assert!(serde_json::to_value(&stat).unwrap()["cycles"].is_null());
        let error = Stat::read("{\"counter-value\" : 1")
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("perf stat -j wrote: {\"counter-value\" : 1"),
            "{error}"
        );
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
}
