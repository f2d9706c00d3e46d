//! The two daemons of a tunnel: whether they run, their CPU time and their counters.
//!
//! Calls fail with [`Program`](crate::LabError::Program) if a daemon is gone or does not answer.

use std::{collections::BTreeMap, io, os::unix::process::ExitStatusExt as _, time::Duration};

use convoy_report::{Counters, Report};

use super::process;
use crate::Result;
use crate::wireguard::{Daemon, End, Tunnel};

/// Lines of a daemon's log in an error message.
const LOG_LINES: usize = 20;

/// A reading of both daemons.
#[derive(Debug)]
pub struct Readings {
    /// The left daemon.
    pub left: Reading,
    /// The right daemon.
    pub right: Reading,
}

/// A daemon's CPU time and counters.
#[derive(Debug)]
pub struct Reading {
    /// CPU time of all its threads since its start.
    pub cpu: Duration,
    /// The same of each thread that runs, by name.
    pub threads: BTreeMap<String, Duration>,
    /// Its counters; `None` if the daemon is not Convoy.
    pub counters: Option<Counters>,
}

/// Reads both daemons.
pub fn read(tunnel: &Tunnel) -> Result<Readings> {
    Ok(Readings {
        left: read_one(&tunnel.left.daemon)?,
        right: read_one(&tunnel.right.daemon)?,
    })
}

fn read_one(daemon: &Daemon) -> Result<Reading> {
    let pid = daemon.pid();
    let times = || Ok((process::cpu_time(pid)?, process::thread_cpu_times(pid)?));
    let (cpu, threads) = times().map_err(|error: io::Error| {
        daemon.failed(format!("its CPU clocks cannot be read: {error}"))
    })?;
    Ok(Reading {
        cpu,
        threads,
        counters: counters(daemon)?,
    })
}

/// The counters of a daemon; `None` if it is not Convoy.
pub fn counters(daemon: &Daemon) -> Result<Option<Counters>> {
    let answer = daemon.request(&format!("{}\n\n", convoy_report::REQUEST))?;
    let report = convoy_report::json_of(&answer)
        .map(serde_json::from_str::<Report>)
        .transpose()
        .map_err(|error| daemon.failed(format!("its counters cannot be read: {error}")))?;
    Ok(report.map(|report| report.counters))
}

/// Fails if a daemon has ended, with the end of its log.
pub fn check(tunnel: &mut Tunnel) -> Result<()> {
    for end in [&mut tunnel.left, &mut tunnel.right] {
        let Some(status) = end.daemon.ended() else {
            continue;
        };
        let hint = match status.signal() {
            Some(libc::SIGKILL) => " (out of memory? fix: free some or raise the limit)",
            _ => "",
        };
        let problem = format!("ended with {status}{hint}; {}", log_tail(end));
        return Err(end.daemon.failed(problem));
    }
    Ok(())
}

/// The end of the log of the daemon at `end`, for an error message.
pub fn log_tail(end: &End) -> String {
    let label = end.namespace.label();
    let log = end.daemon.log();
    let lines: Vec<_> = log.lines().collect();
    if lines.is_empty() {
        return format!("the {label} one logged nothing (LOG_LEVEL=debug shows more)");
    }
    let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n    ");
    format!("the log of the {label} one ends:\n    {tail}")
}
