//! `strace -c`: system calls by name.
//!
//! It stops the daemon at every call, which makes it several times slower: a run of its own, in which
//! the counts for a gigabyte are right and nothing about speed is.

use std::fs;

use convoy_lab::Pid;
use serde::Serialize;

use crate::{ProfileError, attach::Attachment, directory::Directory, tools};

/// What `strace` writes.
const RAW: &str = "syscalls.txt";
/// What is kept of it.
pub(crate) const FILE: &str = "syscalls.json";
/// Calls whose purpose is to wait: threads sleep in them, or wake others that do.
const WAITS: [&str; 14] = [
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "futex",
    "futex_wait",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "restart_syscall",
    "rt_sigtimedwait",
    "select",
];

/// The system calls of all threads together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Syscalls {
    /// 10⁹ bytes of packets that went through the tunnel meanwhile; none where that is not known.
    pub(crate) gigabytes: Option<f64>,
    /// Calls that do not wait.
    pub(crate) total: Total,
    /// Of those, the most frequent first.
    pub(crate) calls: Vec<Call>,
    /// Calls that wait: not a cost, but each may be a thread that had to be woken.
    pub(crate) waits: Vec<Call>,
}

/// All calls of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Total {
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) calls_per_gb: Option<f64>,
}

/// All calls of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) errors: u64,
    /// CPU time inside the kernel, tracing included: good for comparing calls, not for adding up.
    pub(crate) seconds: f64,
    pub(crate) calls_per_gb: Option<f64>,
}

pub(crate) fn attach(directory: &Directory, pids: &[Pid]) -> Result<Attachment, ProfileError> {
    let mut command = tools::command("strace");
    command.args(["-c", "-f", "-o"]).arg(directory.file(RAW));
    for pid in pids {
        command.args(["-p", &pid.to_string()]);
    }
    let targets = pids.to_vec();
    Attachment::start(
        directory.at_work(),
        "strace -c -f",
        command,
        pids,
        move |_| targets.iter().all(is_traced),
    )
}

/// Reads what `strace` wrote, and writes what is kept.
pub(crate) fn write(
    directory: &Directory,
    gigabytes: Option<f64>,
) -> Result<Syscalls, ProfileError> {
    let syscalls = Syscalls::read(&directory.read(RAW)?, gigabytes)?;
    let json = serde_json::to_string_pretty(&syscalls).unwrap_or_default() + "\n";
    directory.write(FILE, json.as_bytes())?;
    directory.remove(RAW)?;
    Ok(syscalls)
}

impl Syscalls {
    fn read(table: &str, gigabytes: Option<f64>) -> Result<Self, ProfileError> {
        let gigabytes = gigabytes.filter(|&gigabytes| gigabytes > 0.0);
        let per_gb = |count: u64| gigabytes.map(|gigabytes| count as f64 / gigabytes);
        let rows = table
            .lines()
            .skip_while(|line| !line.starts_with("---"))
            .skip(1);
        let rows = rows.take_while(|line| !line.starts_with("---"));
        let mut all = rows
            .map(|line| {
                let call = call(line, per_gb);
                call.ok_or_else(|| ProfileError::Output {
                    program: "strace -c",
                    line: line.to_owned(),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|call| std::cmp::Reverse(call.count));
        let waits = |call: &Call| WAITS.contains(&call.name.as_str());
        let (waits, calls): (Vec<_>, Vec<_>) = all.into_iter().partition(waits);
        let sum = |value: fn(&Call) -> u64| calls.iter().map(value).sum();
        let count = sum(|call| call.count);
        Ok(Self {
            gigabytes,
            total: Total {
                count,
                errors: sum(|call| call.errors),
                calls_per_gb: per_gb(count),
            },
            calls,
            waits,
        })
    }
}

/// `% time, seconds, usecs/call, calls, errors, syscall`; without errors that column is blank.
fn call(line: &str, per_gb: impl Fn(u64) -> Option<f64>) -> Option<Call> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (seconds, count, errors, name) = match words[..] {
        [_, seconds, _, count, name] => (seconds, count, "0", name),
        [_, seconds, _, count, errors, name] => (seconds, count, errors, name),
        _ => return None,
    };
    let count = count.parse().ok()?;
    Some(Call {
        name: name.to_owned(),
        count,
        errors: errors.parse().ok()?,
        seconds: seconds.parse().ok()?,
        calls_per_gb: per_gb(count),
    })
}

/// Whether every thread of `pid` is traced.
fn is_traced(pid: &Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let mut statuses = threads.filter_map(|entry| {
        let path = entry.ok()?.path().join("status");
        fs::read_to_string(path).ok()
    });
    statuses.all(|status| !status.contains("TracerPid:\t0\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 38.74    0.616143          92      6667       201 futex
 11.98    0.190512          16     11514      4087 read
  6.59    0.104874          14      7055           sendmsg
------ ----------- ----------- --------- --------- ----------------
100.00    1.590540          32     49278      6506 total
";

    #[test]
    fn calls_are_counted_for_a_gigabyte_and_waits_are_apart() {
        let syscalls = Syscalls::read(TABLE, Some(2.0)).unwrap();
        let names: Vec<_> = syscalls
            .calls
            .iter()
            .map(|call| call.name.as_str())
            .collect();
        assert_eq!(names, ["read", "sendmsg"]);
        let read = &syscalls.calls[0];
        assert_eq!((read.count, read.errors), (11_514, 4_087));
        assert_eq!((read.seconds, read.calls_per_gb), (0.190512, Some(5_757.0)));
        assert_eq!(syscalls.calls[1].errors, 0);
        assert_eq!(syscalls.waits[0].name, "futex");
        let total = &syscalls.total;
        assert_eq!((total.count, total.calls_per_gb), (18_569, Some(9_284.5)));
    }

    #[test]
    fn without_traffic_there_are_no_calls_for_a_gigabyte() {
        for gigabytes in [None, Some(0.0)] {
            let syscalls = Syscalls::read(TABLE, gigabytes).unwrap();
            assert_eq!(
                (syscalls.gigabytes, syscalls.total.calls_per_gb),
                (None, None)
            );
            assert_eq!(syscalls.calls[0].calls_per_gb, None);
        }
    }

    #[test]
    fn a_daemon_that_asked_for_nothing_has_no_calls() {
        assert!(Syscalls::read("", None).unwrap().calls.is_empty());
    }

    #[test]
    fn a_table_that_is_not_understood_is_named() {
        let table = TABLE.replace("11514", "many");
        let error = Syscalls::read(&table, None).unwrap_err().to_string();
        assert!(
            error.starts_with("what strace -c wrote is not understood:"),
            "{error}"
        );
    }
}
