//! `strace -c`: system calls by name.
//!
//! strace stops the daemon at every call and so makes it several times slower. It gets a run of its own, of which
//! only the counts per gigabyte are meaningful.

use std::{io::PipeReader, process::Command};

use anyhow::Result;
use convoy_lab::Pid;
use procfs::process::Process;
use serde::Serialize;

use super::directory::Directory;
use super::tool::{self, Subject, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "strace -c -f",
    progress: "counting system calls (strace -c)",
    command,
    is_attached,
};
/// Written by `strace`.
const RAW: &str = "syscalls.txt";
pub(super) const FILE: &str = "syscalls.json";
/// Calls that wait, or that wake a waiting thread.
const WAITS: &str = "clock_nanosleep epoll_pwait epoll_pwait2 epoll_wait futex futex_wait nanosleep pause \
                     poll ppoll pselect6 restart_syscall rt_sigtimedwait select";

/// The system calls of all threads together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Syscalls {
    /// 10⁹ bytes of packets through the tunnel meanwhile; `None` if unknown.
    pub(super) gigabytes: Option<f64>,
    /// Number of calls that do not wait.
    pub(super) total: Total,
    /// Calls, the most frequent first.
    pub(super) calls: Vec<Call>,
    /// Calls that wait: not a cost, but each may mean a wake-up.
    pub(super) waits: Vec<Call>,
}

/// All calls of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) errors: u64,
    pub(super) calls_per_gb: Option<f64>,
}

/// All calls with the same name.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) errors: u64,
    /// CPU time in the kernel, including tracing: comparable between calls, but not to be added up.
    pub(super) seconds: f64,
    pub(super) calls_per_gb: Option<f64>,
}

fn command(subject: &Subject) -> Result<Command> {
    let mut command = tool::command("strace");
    command.args(["-c", "-f", "-o"]);
    command.arg(subject.directory.file(RAW));
    for pid in &subject.pids {
        command.args(["-p", &pid.to_string()]);
    }
    Ok(command)
}

/// Returns whether every thread of all `pids` is traced.
fn is_attached(pids: &[Pid], _says: &mut PipeReader) -> bool {
    let threads = |pid: &Pid| Process::new(pid.as_raw()).and_then(|process| process.tasks());
    let mut threads = pids.iter().flat_map(threads).flatten().flatten();
    threads.all(|thread| !thread.status().is_ok_and(|status| status.tracerpid == 0))
}

/// Parses the output of `strace`, and writes [`FILE`].
pub(super) fn read(directory: &Directory, gigabytes: Option<f64>) -> Result<Syscalls> {
    let syscalls = Syscalls::read(&directory.take(RAW)?, gigabytes)?;
    directory.write_json(FILE, &syscalls)?;
    Ok(syscalls)
}

impl Syscalls {
    fn read(table: &str, gigabytes: Option<f64>) -> Result<Self> {
        let gigabytes = gigabytes.filter(|&gigabytes| gigabytes > 0.0);
        let is_rule = |line: &&str| line.starts_with("---");
        let rows = table.lines().skip_while(|line| !is_rule(line)).skip(1);
        let calls = rows
            .take_while(|line| !is_rule(line))
            .map(|line| call(line, gigabytes).ok_or_else(|| tool::unreadable(&TOOL, line)));
        let mut calls = calls.collect::<Result<Vec<_>>>()?;
        calls.sort_by_key(|call| std::cmp::Reverse(call.count));
        let waits = |call: &Call| WAITS.split(' ').any(|name| name == call.name);
        let (waits, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(waits);
        let count = calls.iter().map(|call| call.count).sum();
        Ok(Self {
            gigabytes,
            total: Total {
                count,
                errors: calls.iter().map(|call| call.errors).sum(),
                calls_per_gb: gigabytes.map(|gigabytes| count as f64 / gigabytes),
            },
            calls,
            waits,
        })
    }
}

/// `% time, seconds, usecs/call, calls, errors, syscall`; the column of errors is blank if there are none.
fn call(line: &str, gigabytes: Option<f64>) -> Option<Call> {
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
        calls_per_gb: gigabytes.map(|gigabytes| count as f64 / gigabytes),
    })
}

#[cfg(test)]
impl Call {
    pub(super) fn counted((name, count): (&str, u64)) -> Self {
        Self {
            name: name.to_owned(),
            count,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 38.74    0.616143          92      6667       201 futex
  6.59    0.104874          14      7055           sendmsg
 11.98    0.190512          16     11514      4087 read
------ ----------- ----------- --------- --------- ----------------
100.00    1.590540          32     49278      6506 total
";

    #[test]
    fn calls_are_counted_a_gigabyte_and_waits_are_apart() {
        let syscalls = Syscalls::read(TABLE, Some(2.0)).unwrap();
        let counts = |calls: &[Call]| {
            let counts = calls.iter().map(|call| (call.count, call.errors));
            counts.collect::<Vec<_>>()
        };
        assert_eq!(counts(&syscalls.calls), [(11_514, 4_087), (7_055, 0)]);
        assert_eq!(counts(&syscalls.waits), [(6_667, 201)]);
        assert_eq!(syscalls.waits[0].seconds, 0.616143);
        let total = &syscalls.total;
        assert_eq!((total.count, total.calls_per_gb), (18_569, Some(9_284.5)));
        let idle = Syscalls::read(TABLE, Some(0.0)).unwrap();
        assert_eq!((idle.gigabytes, idle.total.calls_per_gb), (None, None));
        assert_eq!(Syscalls::read("", None).unwrap(), Syscalls::default());
        let error = Syscalls::read(&TABLE.replace("11514", "many"), None);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("many"), "{error}");
    }
}
