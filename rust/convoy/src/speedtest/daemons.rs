//! The two daemons of a tunnel: whether they live, and what they have used.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use convoy_lab::wireguard::{Daemon, End, Tunnel};
use nix::time::ClockId;

use super::counters::Counters;

/// Lines of a daemon's log in an error message.
const LOG_LINES: usize = 20;
/// Convoy answers on one line, which is what `convoy stats --json` prints.
const STATS_REQUEST: &str = "get=convoy_stats\n\n";
const STATS_ANSWER: &str = "convoy_stats=";

/// Both daemons at one moment.
#[derive(Debug)]
pub(super) struct Readings {
    pub(super) left: Reading,
    pub(super) right: Reading,
}

/// What a daemon had used and counted.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) cpu: Duration,
    /// None where the daemon is not Convoy.
    pub(super) counters: Option<Counters>,
}

/// Reads both daemons.
pub(super) fn read(tunnel: &Tunnel) -> anyhow::Result<Readings> {
    Ok(Readings {
        left: read_one(&tunnel.left.daemon)?,
        right: read_one(&tunnel.right.daemon)?,
    })
}

/// Fails, with the end of its log, when a daemon has ended.
pub(super) fn check(tunnel: &mut Tunnel) -> anyhow::Result<()> {
    for end in [&mut tunnel.left, &mut tunnel.right] {
        let Some(status) = end.daemon.ended() else {
            continue;
        };
        let hint = match status.signal() {
            Some(libc::SIGKILL) => " (out of memory? fix: free some, or raise the limit)",
            _ => "",
        };
        bail!("the daemon ended with {status}{hint}; {}", log_tail(end));
    }
    Ok(())
}

/// What the daemon at `end` wrote last, for a message.
pub(super) fn log_tail(end: &End) -> String {
    let label = end.namespace.label();
    let log = end.daemon.log();
    let lines: Vec<_> = log.lines().collect();
    if lines.is_empty() {
        return format!("the {label} one logged nothing (LOG_LEVEL=debug tells more)");
    }
    let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
    format!(
        "the log of the {label} one ends:\n    {}",
        tail.join("\n    ")
    )
}

fn read_one(daemon: &Daemon) -> anyhow::Result<Reading> {
    let clock = ClockId::pid_cpu_clock_id(daemon.pid()).context("find the daemon's CPU clock")?;
    let cpu = clock.now().context("read the daemon's CPU clock")?;
    let answer = daemon.request(STATS_REQUEST)?;
    let counters = answer
        .lines()
        .find_map(|line| line.strip_prefix(STATS_ANSWER))
        .map(Counters::from_json);
    Ok(Reading {
        cpu: cpu.into(),
        counters: counters.transpose().context("read the daemon's counters")?,
    })
}
