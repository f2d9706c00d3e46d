//! One daemon inside a namespace.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use convoy_lab::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::time::ClockId;
use nix::unistd::Pid;

use super::counters::Counters;
use super::log_tail::LogTail;
use super::uapi::{self, Pairing};

/// The tunnel's interface, in both namespaces.
pub(super) const INTERFACE: &str = "wg0";

const START_PATIENCE: Duration = Duration::from_secs(10);
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Variables that would make a daemon take over something of the caller's.
const NOT_INHERITED: [&str; 4] = [
    "WG_TUN_FD",
    "WG_UAPI_FD",
    "WG_PROCESS_FOREGROUND",
    "CONVOY_BACKGROUND",
];

/// A running daemon; dropping it ends it.
#[derive(Debug)]
pub(super) struct Daemon {
    side: String,
    process: Child,
    socket: PathBuf,
    log: LogTail,
}

/// What a daemon had used and counted at some moment.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) cpu: Duration,
    /// None where the daemon is not Convoy.
    pub(super) counters: Option<Counters>,
}

impl Daemon {
    /// Starts `program` inside `namespace` and waits until it can be configured.
    pub(super) fn start(
        namespace: &Namespace,
        program: &Path,
        switches: &[String],
    ) -> anyhow::Result<Self> {
        let mut command = namespace.command(program);
        command.args(switches).args(["-f", INTERFACE]);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        let log = LogTail::of(&mut command)?;
        let process = command
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let socket = format!("wireguard/{INTERFACE}.sock");
        let mut daemon = Self {
            side: namespace.label().to_owned(),
            process,
            socket: namespace.run_directory().join(socket),
            log,
        };
        let deadline = Instant::now() + START_PATIENCE;
        while !daemon.socket.exists() {
            daemon.check()?;
            if Instant::now() > deadline {
                bail!(
                    "the {} daemon made no socket within {START_PATIENCE:?}; its log ends:\n{}",
                    daemon.side,
                    daemon.log.text()
                );
            }
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(daemon)
    }

    pub(super) fn configure(&self, pairing: &Pairing) -> anyhow::Result<()> {
        uapi::configure(&self.socket, pairing).with_context(|| self.described())
    }

    /// Fails, with the end of the log, when the daemon has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.process.try_wait()? else {
            return Ok(());
        };
        // The log's reader may still have lines to take.
        thread::sleep(Duration::from_millis(50));
        let memory = if std::os::unix::process::ExitStatusExt::signal(&status) == Some(9) {
            " (out of memory? fix: free some, or raise the container's limit)"
        } else {
            ""
        };
        bail!(
            "the {} daemon ended: {status}{memory}; its log ends:\n{}",
            self.side,
            self.log.text()
        )
    }

    pub(super) fn read(&self) -> anyhow::Result<Reading> {
        let clock = ClockId::pid_cpu_clock_id(self.pid()).context("find the daemon's CPU clock")?;
        let now = clock.now().context("read the daemon's CPU clock")?;
        Ok(Reading {
            cpu: now.into(),
            counters: uapi::counters(&self.socket).with_context(|| self.described())?,
        })
    }

    /// For messages: which daemon, and what it said last.
    pub(super) fn described(&self) -> String {
        format!(
            "the {} daemon, whose log ends:\n{}\n ",
            self.side,
            self.log.text()
        )
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It removes its interface and its socket; the next one takes their names.
        let _ = kill(self.pid(), Signal::SIGTERM);
        let deadline = Instant::now() + STOP_PATIENCE;
        while let Ok(None) = self.process.try_wait() {
            if Instant::now() > deadline {
                let _ = self.process.kill();
                let _ = self.process.wait();
                break;
            }
            thread::sleep(CHECK_INTERVAL);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}
