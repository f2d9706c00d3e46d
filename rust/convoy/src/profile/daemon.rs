//! Which process a daemon is, and what it has carried.

use std::fmt;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use convoy_lab::Pid;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::cli::InterfaceName;
use crate::uapi::socket;

/// The thread that every daemon has, and no other program of ours.
const EVENT_LOOP: &str = "tunnel";

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pid: Pid,
    /// Where it answers; none where that is not known.
    socket: Option<PathBuf>,
}

impl Daemon {
    /// A daemon that this program has started.
    pub(crate) fn new(pid: Pid, socket: &Path) -> Self {
        let socket = Some(socket.to_owned());
        Self { pid, socket }
    }

    /// The daemon that answers for `interface`.
    pub(super) fn of_interface(interface: &InterfaceName) -> anyhow::Result<Self> {
        let path = socket::path(interface.as_str());
        let pid = listener(&path).with_context(|| {
            format!(
                "no daemon answers for {} on {} (fix: start it, or give --pid for one in another \
                 namespace)",
                interface.as_str(),
                path.display()
            )
        })?;
        // A socket that was inherited is that of whoever made it.
        ensure_ours(pid).with_context(|| {
            format!(
                "{} was not made by a daemon (fix: give --pid)",
                path.display()
            )
        })?;
        Ok(Self::new(pid, &path))
    }

    /// The daemon that the process `pid` is.
    pub(super) fn of_process(pid: Pid) -> anyhow::Result<Self> {
        ensure_ours(pid)?;
        // As the process sees it: it may be in another namespace.
        let directory = format!("/proc/{pid}/root/run/wireguard");
        let sockets = fs::read_dir(directory).into_iter().flatten();
        let mut sockets = sockets.filter_map(|entry| Some(entry.ok()?.path()));
        let socket = sockets.find(|path| listener(path).is_ok_and(|listener| listener == pid));
        Ok(Self { pid, socket })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Bytes of the packets that it has carried, both ways; none where it does not say.
    pub(super) fn bytes_carried(&self) -> Option<u64> {
        let json = convoy_stats::query(self.socket.as_ref()?).ok()?;
        let report: convoy_stats::Report = serde_json::from_str(&json).ok()?;
        Some(report.counters.bytes_carried())
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.socket.as_ref().and_then(|path| path.file_stem());
        if let Some(name) = name {
            write!(f, "{}, ", name.display())?;
        }
        write!(f, "process {}", self.pid)
    }
}

/// The process that listens on `path` (unix(7), SO_PEERCRED).
fn listener(path: &Path) -> anyhow::Result<Pid> {
    let credentials = getsockopt(&UnixStream::connect(path)?, PeerCredentials)?;
    Ok(Pid::from_raw(credentials.pid()))
}

fn ensure_ours(pid: Pid) -> anyhow::Result<()> {
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(_) => bail!("there is no process {pid}"),
    };
    let mut names = threads.filter_map(|entry| {
        let path = entry.ok()?.path().join("comm");
        fs::read_to_string(path).ok()
    });
    ensure!(
        names.any(|name| name.trim_end() == EVENT_LOOP),
        "process {pid} is no convoy daemon: it has no thread named {EVENT_LOOP}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_a_daemon_is_an_error_that_names_its_socket() {
        let error = Daemon::of_interface(&"no-such-one".parse().unwrap()).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("/wireguard/no-such-one.sock"), "{text}");
    }

    #[test]
    fn another_program_is_no_daemon() {
        let error = Daemon::of_process(Pid::this()).unwrap_err().to_string();
        assert!(error.contains("is no convoy daemon"), "{error}");
        let error = Daemon::of_process(Pid::from_raw(i32::MAX)).unwrap_err();
        assert!(
            error.to_string().starts_with("there is no process"),
            "{error}"
        );
    }
}
