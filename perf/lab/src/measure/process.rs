//! Resources used by any process. Calls fail if it is gone.

use std::{collections::BTreeMap, fs, io, path::Path, time::Duration};

use nix::{time::ClockId, unistd::Pid};
use procfs::process::{Process, Stat, Task, all_processes};
use procfs::{CurrentSI as _, KernelStats, ProcError};

/// Written to `/proc/PID/clear_refs`, resets the peak (proc_pid_clear_refs(5)).
const FORGET_PEAK: &str = "5";

/// The resources of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Memory, in KiB (`VmRSS`).
    pub resident_kib: u64,
    /// Peak memory, in KiB (`VmHWM`).
    pub peak_kib: u64,
    /// Its threads.
    pub threads: u64,
    /// Its open file descriptors.
    pub descriptors: u64,
}

/// Memory, threads and descriptors.
pub fn usage(pid: Pid) -> io::Result<Usage> {
    let process = Process::new(pid.as_raw()).map_err(error)?;
    let status = process.status().map_err(error)?;
    // A zombie has no memory.
    let ended = || io::Error::new(io::ErrorKind::NotFound, "the process has ended");
    Ok(Usage {
        resident_kib: status.vmrss.ok_or_else(ended)?,
        peak_kib: status.vmhwm.ok_or_else(ended)?,
        threads: status.threads,
        descriptors: process.fd_count().map_err(error)? as u64,
    })
}

/// Returns whether one of its threads runs: the first may be a zombie while others still hold files and devices open.
pub fn is_alive(pid: Pid) -> bool {
    let tasks = Process::new(pid.as_raw()).and_then(|process| process.tasks());
    tasks.is_ok_and(|tasks| {
        let mut states = tasks.filter_map(|task| Some(task.ok()?.stat().ok()?.state));
        states.any(|state| !matches!(state, 'Z' | 'X'))
    })
}

/// CPU time of all its threads since its start.
pub fn cpu_time(pid: Pid) -> io::Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(pid)?;
    Ok(clock.now().map(Duration::from)?)
}

/// CPU time of each thread that runs, by its name, since its start. Threads of one name count together.
pub(crate) fn thread_cpu_times(pid: Pid) -> io::Result<BTreeMap<String, Duration>> {
    let tasks = Process::new(pid.as_raw()).and_then(|process| process.tasks());
    let mut times = BTreeMap::new();
    for task in tasks.map_err(error)? {
        // Others may end meanwhile.
        let Ok((stat, time)) = task.and_then(|task| Ok((task.stat()?, cpu_time_of(&task)?))) else {
            continue;
        };
        *times.entry(stat.comm).or_default() += time;
    }
    Ok(times)
}

/// CPU time of a thread: in nanoseconds (`schedstat`), or in clock ticks where the kernel does not have that.
fn cpu_time_of(task: &Task) -> Result<Duration, ProcError> {
    if let Ok(schedstat) = task.schedstat() {
        return Ok(Duration::from_nanos(schedstat.sum_exec_runtime));
    }
    let stat = task.stat()?;
    Ok(time_of(stat.utime + stat.stime))
}

/// CPU time of a process group since its start: of the processes in it, and of children for which they have waited. The
/// unit is a clock tick, usually 10 ms.
pub fn group_cpu_time(group: Pid) -> io::Result<Duration> {
    let own = stats()?.filter(|stat| stat.pgrp == group.as_raw());
    let waited = |stat: &Stat| (stat.cutime + stat.cstime).max(0).cast_unsigned();
    let ticks = own.map(|it| it.utime + it.stime + waited(&it));
    Ok(time_of(ticks.sum()))
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// The processes that execute a file below `directory`.
pub fn executing(directory: &Path) -> io::Result<Vec<Pid>> {
    let all = all_processes().map_err(error)?;
    let own = all.filter_map(|process| {
        let process = process.ok()?;
        let is_own = process.exe().ok()?.starts_with(directory);
        is_own.then(|| Pid::from_raw(process.pid))
    });
    Ok(own.collect())
}

/// The processes whose parent is `pid`.
pub fn children(pid: Pid) -> io::Result<Vec<Pid>> {
    let own = stats()?.filter(|stat| stat.ppid == pid.as_raw());
    Ok(own.map(|stat| Pid::from_raw(stat.pid)).collect())
}

fn stats() -> io::Result<impl Iterator<Item = Stat>> {
    let all = all_processes().map_err(error)?;
    Ok(all.filter_map(|process| process.ok()?.stat().ok()))
}

/// Its peak memory in bytes (`VmHWM`, proc_pid_status(5)).
pub fn peak_memory(pid: Pid) -> io::Result<u64> {
    Ok(usage(pid)?.peak_kib * 1_024)
}

/// Resets the peak that [`peak_memory`] reports.
pub fn forget_peak_memory(pid: Pid) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), FORGET_PEAK)
}

/// CPU time of all processes since boot, including stolen time, but without interrupts, which traffic causes.
pub fn machine_busy() -> io::Result<Duration> {
    let total = KernelStats::current().map_err(error)?.total;
    let stolen = total.steal_ms().unwrap_or(0);
    let busy_ms = total.user_ms() + total.nice_ms() + total.system_ms() + stolen;
    Ok(Duration::from_millis(busy_ms))
}

fn error(error: ProcError) -> io::Error {
    match error {
        ProcError::Io(error, _) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_peak_that_is_forgotten_does_not_count_any_more() {
        const BYTES: usize = 64 * 1_024 * 1_024;
        let own = Pid::this();
        let block = vec![1_u8; BYTES];
        let with_block = peak_memory(own).unwrap();
        assert!(with_block >= BYTES as u64, "{}", block.len());
        drop(block);
        forget_peak_memory(own).unwrap();
        let after = peak_memory(own).unwrap();
        assert!(after + BYTES as u64 / 2 < with_block, "{after}");
        let usage = usage(own).unwrap();
        assert!(usage.threads >= 1 && usage.descriptors >= 1);
        assert!(cpu_time(own).unwrap() > Duration::ZERO);
    }

    #[test]
    fn threads_are_told_apart_by_their_names() {
        let own = Pid::this();
        let name = "busy-thread";
        let busy = thread::Builder::new().name(name.to_owned()).spawn(|| {
            let time = || thread_cpu_times(Pid::this()).unwrap()[name];
            while time() < Duration::from_millis(20) {}
            time()
        });
        let busy = busy.unwrap().join().unwrap();
        assert!(busy <= cpu_time(own).unwrap(), "{busy:?}");
        let left = thread_cpu_times(own).unwrap();
        assert!(!left.contains_key(name) && !left.is_empty(), "{left:?}");
    }
}
