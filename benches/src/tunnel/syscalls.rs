//! System calls of processes, counted by the kernel's tracepoint.
//!
//! Counting hardly slows a process, where strace(1) stops it twice a call: slowed down, it would fill
//! its batches less.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

const EVENT: &str = "raw_syscalls:sys_enter";
/// How long perf may take to attach.
const PATIENCE: Duration = Duration::from_secs(10);
/// The link target of a counter's descriptor.
const COUNTER: &str = "anon_inode:[perf_event]";

/// A count that runs; ended when dropped.
pub(crate) struct Count(Option<Child>);

impl Count {
    /// Counts the calls of all threads of `pids` from now on.
    pub(crate) fn start(pids: [Pid; 2]) -> anyhow::Result<Self> {
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
        if attached != Some(true) {
            bail!(
                "perf does not count: {}",
                count.end(Signal::SIGKILL)?.trim()
            );
        }
        Ok(count)
    }

    /// The number of calls.
    pub(crate) fn finish(mut self) -> anyhow::Result<u64> {
        // perf prints its counts when it is interrupted.
        counted(&self.end(Signal::SIGINT)?)
    }

    fn has_ended(&mut self) -> bool {
        let ended = self.0.as_mut().map(Child::try_wait);
        !matches!(ended, Some(Ok(None)))
    }

    /// Ends perf, and returns its output.
    fn end(&mut self, signal: Signal) -> anyhow::Result<String> {
        let child = self.0.take().context("perf has been waited for")?;
        // Fails only for one that has ended; the process number is below 2²² (PID_MAX_LIMIT).
        let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        let output = child.wait_with_output().context("wait for perf")?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        // Fails only where perf has been waited for.
        let _ = self.end(Signal::SIGKILL);
    }
}

fn has_counter(pid: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut targets = descriptors.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    targets.any(|target| target.as_os_str() == COUNTER)
}

/// The first field of the event's line: perf-stat(1), "CSV FORMAT".
fn counted(printed: &str) -> anyhow::Result<u64> {
    let mut lines = printed
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.contains(&EVENT));
    let counted = line.and_then(|fields| fields.first()?.parse().ok());
    counted.with_context(|| format!("perf counted nothing: {}", printed.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_that_of_the_event() {
        let printed = "# started\n931649,,raw_syscalls:sys_enter,162983813,100.00,,\n";
        assert_eq!(counted(printed).unwrap(), 931_649);
        let printed = "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        let error = counted(printed).unwrap_err().to_string();
        assert!(error.contains("<not counted>"), "{error}");
    }
}
