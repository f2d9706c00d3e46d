//! Finds a daemon's process, and how much it has carried.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use anyhow::{Context as _, Result, anyhow, ensure};
use convoy_lab::{Pid, eventually, measure::process};
use convoy_report::Report;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use procfs::process::Process;

/// A thread that every daemon has, and no other program of ours.
const EVENT_LOOP: &str = "tunnel";
/// The file that forwarders and supervisors execute, too.
const PROGRAM: &str = "convoy";
/// Directory of the daemons' sockets, also as seen from outside their namespace.
const SOCKETS: &str = "run/wireguard";
/// Time limit for a daemon's answer to a request.
const ANSWER: Duration = Duration::from_secs(1);

/// A running daemon.
pub(crate) struct Daemon {
    pub(crate) pid: Pid,
    /// Its socket; `None` if unknown.
    pub(crate) socket: Option<PathBuf>,
}

impl Daemon {
    /// The daemon that answers for `interface`.
    pub(super) fn of_interface(interface: &str) -> Result<Self> {
        let path = PathBuf::from(format!("/var/{SOCKETS}/{interface}.sock"));
        let shown = path.display();
        let pid = listener(&path).map_err(|error| {
            let what = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!("cannot ask for the daemon of {interface} on {shown} (fix: run as root)")
                }
                _ => format!(
                    "no daemon answers for {interface} on {shown} (fix: start it, or give --pid for one in \
                     another namespace)"
                ),
            };
            anyhow!(error).context(what)
        })?;
        // An inherited socket belongs to the process that created it.
        let ours = ensure_ours(pid);
        ours.with_context(|| format!("{shown} was not made by a daemon (fix: give --pid)"))?;
        let socket = Some(path);
        Ok(Self { pid, socket })
    }

    /// The program of ours with the process number `pid`, and its children that execute the same file: without root, a
    /// supervisor has the relay and its child the tunnel.
    pub(super) fn of_process(pid: Pid) -> Result<Vec<Self>> {
        admit(pid);
        let executed = |pid: Pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let own = executed(pid);
        let has_name = |path: &PathBuf| path.file_name().is_some_and(|name| name == PROGRAM);
        if !own.as_ref().is_some_and(has_name) {
            ensure_ours(pid)?;
        }
        let children = process::children(pid).context("find its children")?;
        let same = children.into_iter().filter(|&child| {
            admit(child);
            // A daemon's own child only removes its socket.
            ensure_ours(child).is_ok() && own.is_some() && executed(child) == own
        });
        Ok([pid].into_iter().chain(same).map(Self::found).collect())
    }

    fn found(pid: Pid) -> Self {
        // As the process sees it, since it may be in another namespace.
        let directory = format!("/proc/{pid}/root/{SOCKETS}");
        let sockets = fs::read_dir(directory).into_iter().flatten();
        let mut sockets = sockets.filter_map(|entry| Some(entry.ok()?.path()));
        let socket = sockets.find(|path| listener(path).is_ok_and(|listener| listener == pid));
        Self { pid, socket }
    }

    /// Bytes of all packets that it has carried, in both directions; `None` if it does not report them.
    pub(super) fn bytes_carried(&self) -> Option<u64> {
        let connect = |path: &Path, _| UnixStream::connect(path);
        let json = convoy_report::query(self.socket.as_ref()?, connect).ok()?;
        let report: Report = serde_json::from_str(&json).ok()?;
        Some(report.counters.bytes_carried())
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.socket.as_ref().and_then(|path| path.file_stem()) {
            write!(f, "{}, ", name.display())?;
        }
        write!(f, "process {}", self.pid)
    }
}

/// The process that listens on `path` (unix(7), SO_PEERCRED).
fn listener(path: &Path) -> std::io::Result<Pid> {
    let credentials = getsockopt(&UnixStream::connect(path)?, PeerCredentials)?;
    Ok(Pid::from_raw(credentials.pid()))
}

fn ensure_ours(pid: Pid) -> Result<()> {
    let threads = Process::new(pid.as_raw()).and_then(|process| process.tasks());
    let threads = threads.map_err(|_| anyhow!("there is no process {pid}"))?;
    let mut names = threads.filter_map(|thread| Some(thread.ok()?.stat().ok()?.comm));
    ensure!(
        names.any(|name| name == EVENT_LOOP),
        "process {pid} is no convoy daemon: it has no thread named {EVENT_LOOP}"
    );
    Ok(())
}

/// Asks a daemon, which hides its memory, to let tools attach, and waits until it has. Leaves other processes alone.
pub(super) fn admit(pid: Pid) {
    let can_be_asked = ensure_ours(pid).is_ok() && catches(pid, Signal::SIGUSR1);
    if can_be_asked && kill(pid, Signal::SIGUSR1).is_ok() {
        // Hidden files of a process belong to root, and so to nobody else.
        let exe = format!("/proc/{pid}/exe");
        eventually(ANSWER, || fs::read_link(&exe).ok());
    }
}

/// Returns whether the process has a handler; the signal would end it otherwise.
fn catches(process: Pid, signal: Signal) -> bool {
    let status = Process::new(process.as_raw()).and_then(|process| process.status());
    status.is_ok_and(|status| status.sigcgt & (1 << (signal as i32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_process_without_a_handler_is_left_alone() {
        let event_loop = thread::Builder::new().name(EVENT_LOOP.to_owned());
        event_loop.spawn(thread::park).unwrap();
        let own = Pid::this();
        assert!(eventually(ANSWER, || ensure_ours(own).ok()).is_some());
        assert!(!catches(own, Signal::SIGUSR1));
        // It would end this test.
        admit(own);
    }
}
