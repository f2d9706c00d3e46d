//! What a daemon's process uses.

use std::fs;

use anyhow::Context as _;
use convoy_lab::Pid;
use nix::time::ClockId;

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) rss_kib: u64,
    /// The most that it had.
    pub(crate) peak_kib: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    pub(crate) cpu_s: f64,
}

impl Process {
    /// Reads it; fails when it has ended.
    pub(crate) fn read(pid: Pid) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        // What has ended and was not waited for yet has no memory.
        let [rss_kib, peak_kib, threads] = parse(&status).context("the process has ended")?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
        let cpu = ClockId::pid_cpu_clock_id(pid).and_then(ClockId::now)?;
        Ok(Self {
            rss_kib,
            peak_kib,
            threads,
            descriptors,
            cpu_s: cpu.tv_sec() as f64 + cpu.tv_nsec() as f64 / 1e9,
        })
    }
}

/// VmRSS and VmHWM in KiB, and the number of threads (proc_pid_status(5)).
fn parse(status: &str) -> Option<[u64; 3]> {
    let number = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| *key == name)?;
        value.split_whitespace().next()?.parse().ok()
    };
    Some([number("VmRSS")?, number("VmHWM")?, number("Threads")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_threads_are_read_from_the_status() {
        let status = "Name:\tconvoy\nVmHWM:\t   15000 kB\nVmRSS:\t   14000 kB\nThreads:\t5\n";
        assert_eq!(parse(status), Some([14_000, 15_000, 5]));
    }

    #[test]
    fn a_process_that_has_ended_has_no_memory() {
        assert_eq!(
            parse("Name:\tconvoy\nState:\tZ (zombie)\nThreads:\t1\n"),
            None
        );
    }

    #[test]
    fn this_process_can_be_read() {
        let process = Process::read(Pid::this()).unwrap();
        assert!(process.rss_kib > 0 && process.rss_kib <= process.peak_kib);
        assert!(process.threads >= 1 && process.descriptors >= 1 && process.cpu_s > 0.0);
    }
}
