//! Finds a daemon's process, and how much it has carried.

use std::{
    fmt, fs, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use convoy_lab::{Pid, measure::process};
use convoy_report::Report;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::request;
use crate::{Error, error::Step as _};

/// A thread that every daemon has, and no other program of ours.
const EVENT_LOOP: &str = "tunnel";
/// The file that forwarders and supervisors execute, too.
const PROGRAM: &str = "convoy";
/// Directory of the daemons' sockets, also as seen from outside their namespace.
const SOCKETS: &str = "run/wireguard";

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pid: Pid,
    /// Its socket; `None` if unknown.
    socket: Option<PathBuf>,
}

impl Daemon {
    /// A daemon that this program has started.
    pub(crate) fn new(pid: Pid, socket: &Path) -> Self {
        let socket = Some(socket.to_owned());
        Self { pid, socket }
    }

    /// The daemon that answers for `interface`.
    pub(super) fn of_interface(interface: &str) -> Result<Self, Error> {
        let path = Path::new("/var")
            .join(SOCKETS)
            .join(format!("{interface}.sock"));
        let shown = path.display();
        let listener = listener(&path);
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let what = match listener.as_ref().is_err_and(is_denied) {
            true => {
                format!("cannot ask for the daemon of {interface} on {shown} (fix: run as root)")
            }
            false => format!(
                "no daemon answers for {interface} on {shown} (fix: start it, or give --pid for one in \
                 another namespace)"
            ),
        };
        let pid = listener.step(what)?;
        // An inherited socket belongs to the process that created it.
        ensure_ours(pid).step(format!(
            "{shown} was not made by a daemon (fix: give --pid)"
        ))?;
        Ok(Self::new(pid, &path))
    }

    /// The program of ours with the process number `pid`, and its children that execute the same file: without root, a
    /// supervisor has the relay and its child the tunnel.
    pub(super) fn of_process(pid: Pid) -> Result<Vec<Self>, Error> {
        let process = Self { pid, socket: None };
        process.admit();
        let executed = |pid: Pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let own = executed(pid);
        let has_name = |path: &PathBuf| path.file_name().is_some_and(|name| name == PROGRAM);
        if !own.as_ref().is_some_and(has_name) {
            ensure_ours(pid)?;
        }
        let children = process::children(pid).step("find its children")?;
        // A daemon's own child only removes its socket.
        let children = children
            .into_iter()
            .filter(|child| ensure_ours(*child).is_ok());
        let children = children.inspect(|child| request::ask(*child));
        let same = children.filter(|child| own.is_some() && executed(*child) == own);
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

    /// Asks it to let tools attach.
    pub(super) fn admit(&self) {
        if ensure_ours(self.pid).is_ok() {
            request::ask(self.pid);
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Bytes of all packets that it has carried, in both directions; `None` if it does not report them.
    pub(super) fn bytes_carried(&self) -> Option<u64> {
        let json = convoy_report::query(self.socket.as_ref()?).ok()?;
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

fn ensure_ours(pid: Pid) -> Result<(), Error> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.map_err(|_| Error::Refused(format!("there is no process {pid}")))?;
    let mut names =
        threads.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok());
    match names.any(|name| name.trim_end() == EVENT_LOOP) {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "process {pid} is no convoy daemon: it has no thread named {EVENT_LOOP}"
        ))),
    }
}
