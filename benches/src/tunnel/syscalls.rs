//! Counts system calls by the kernel's tracepoint.
//!
//! Counting costs little. strace(1) stops a process twice per call, and a slower process would fill its batches less.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::{Namespace, Pid};

const EVENT: &str = "raw_syscalls:sys_enter";

/// Counts the system calls of all threads of `pids` for `window`.
///
/// # Errors
/// If perf is not installed.
pub(crate) fn count(
    namespace: &Namespace,
    pids: &[Pid],
    window: Duration,
) -> anyhow::Result<Child> {
    let pids: Vec<_> = pids.iter().map(Pid::to_string).collect();
    let mut perf: Command = namespace.command("perf");
    perf.args(["stat", "-x,", "-e", EVENT, "-p", &pids.join(",")])
        .arg("sleep")
        .arg(window.as_secs_f64().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    perf.spawn()
        .context("start perf (fix: apt-get install linux-perf)")
}

/// Waits for a counter; `None` if it has counted nothing.
pub(crate) fn counted(counter: Child) -> anyhow::Result<Option<u64>> {
    let output = counter.wait_with_output().context("wait for perf")?;
    Ok(calls(&String::from_utf8_lossy(&output.stderr)))
}

/// Parses the first field of the event's line (perf-stat(1), "CSV FORMAT").
fn calls(printed: &str) -> Option<u64> {
    let mut lines = printed
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.contains(&EVENT))?;
    line.first()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_that_of_the_event() {
        let printed = "# started\n931649,,raw_syscalls:sys_enter,162983813,100.00,,\n";
        assert_eq!(calls(printed), Some(931_649));
        let printed = "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(calls(printed), None);
    }
}
