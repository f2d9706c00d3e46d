//! System calls of processes, counted by the kernel's tracepoint.
//!
//! Counting leaves a process at about its speed, where strace(1) stops it twice a call: it would
//! have less time to fill its batches than it has without.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

const EVENT: &str = "raw_syscalls:sys_enter";
/// How long perf may take to attach.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a descriptor of a counter leads to.
const COUNTER: &str = "anon_inode:[perf_event]";

/// A count that runs; ended when dropped.
pub(super) struct Count(Option<Child>);

impl Count {
    /// Counts the calls of all threads of `pids` from now on.
    pub(super) fn start(pids: [Pid; 2]) -> anyhow::Result<Self> {
        let pids = pids.map(|pid| pid.to_string()).join(",");
        let child = Command::new("perf")
            .args(["stat", "-x,", "-e", EVENT, "-p", &pids])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start perf (fix: apt-get install linux-perf)")?;
        let pid = child.id();
        let mut count = Self(Some(child));
        let attached = eventually(PATIENCE, || match count.has_ended() {
            true => Some(false),
            false => has_counter(pid).then_some(true),
        });
        match attached {
            Some(true) => Ok(count),
            Some(false) | None => Err(count.refusal()),
        }
    }

    /// How many there were.
    pub(super) fn finish(mut self) -> anyhow::Result<u64> {
        let child = self.0.take().context("perf has been waited for")?;
        // perf prints its counts when it is interrupted.
        kill(pid_of(&child), Signal::SIGINT).context("interrupt perf")?;
        let output = child.wait_with_output().context("wait for perf")?;
        count(&String::from_utf8_lossy(&output.stderr))
    }

    fn has_ended(&mut self) -> bool {
        let ended = self.0.as_mut().map(Child::try_wait);
        !matches!(ended, Some(Ok(None)))
    }

    fn refusal(&mut self) -> anyhow::Error {
        let Some(mut child) = self.0.take() else {
            return anyhow!("perf has been waited for");
        };
        let _ = child.kill();
        let told = child.wait_with_output().map(|output| output.stderr);
        let told = String::from_utf8_lossy(&told.unwrap_or_default()).into_owned();
        anyhow!("perf does not count: {}", told.trim())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only where it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    // Process numbers are below 2²² (PID_MAX_LIMIT).
    Pid::from_raw(child.id().cast_signed())
}

fn has_counter(pid: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut targets = descriptors.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    targets.any(|target| target.as_os_str() == COUNTER)
}

/// The first field of the event's line: perf-stat(1), "CSV FORMAT".
fn count(told: &str) -> anyhow::Result<u64> {
    let mut lines = told.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.contains(&EVENT));
    let counted = line.and_then(|fields| fields.first()?.parse().ok());
    counted.with_context(|| format!("perf counted nothing: {}", told.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_that_of_the_event() {
        let told = "# started\n931649,,raw_syscalls:sys_enter,162983813,100.00,,\n";
        assert_eq!(count(told).unwrap(), 931_649);
    }

    #[test]
    fn what_is_not_counted_is_an_error_with_what_perf_said() {
        let told = "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        let error = count(told).unwrap_err().to_string();
        assert!(error.contains("<not counted>"), "{error}");
        assert!(count("Error: no permission").is_err());
    }
}
