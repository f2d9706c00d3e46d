//! Tunnels without root, for `convoy exec` and `convoy up --userspace`.
//!
//! ```text
//!  convoy status, down ──▶ NAME.control ─┐            ┌─▶ engine: the network inside, and its TUN
//!  convoy exec NAME ─────▶ NAME.exec ────┼─ supervisor┼─▶ tunnel process ═══ UDP ══▶ peer    in the host's network
//!  signals ──────────────────────────────┘            └─▶ forwards: sockets of the host ◀──▶ sockets inside
//! ```
//!
//! Everything belongs to one user. The supervisor ends everything that it has started; if it is killed, the kernel
//! notifies the holder of the namespaces and the tunnel process, which end.
//!
//! 1. [`up()`] and [`exec`] start a supervisor (`supervisor`), which reports when the tunnel is ready.
//! 2. An `engine` is the network inside: the only part that differs between engines.
//! 3. `tunnel` keeps the tunnel process and its peers' addresses.
//! 4. `commands` are admitted, and `forwards` and a `gateway` run, while the tunnel lasts.
//!
//! [`forward`] relays the host's ports without a tunnel. The program and the client call this crate. It changes no
//! route, rule, name server or firewall of the host, and needs no root.

pub mod args;
mod caller;
mod commands;
mod engine;
pub mod exec;
pub mod forward;
mod forwards;
mod gateway;
mod meeting;
mod peers;
mod place;
mod run;
mod run_directory;
mod settings;
mod sockets;
mod status;
mod supervisor;
mod tunnel;
mod up;

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::bail;
use convoy_config::{Config, InterfaceName};
use convoy_daemon::places;
use convoy_process::{
    logging,
    socket::{ENDING_TIME, connect_within, listens},
};
use nix::unistd::geteuid;

pub(crate) use caller::{Caller, Wanted};
pub(crate) use commands::process_of;
pub use engine::holder;
pub(crate) use meeting::{Refused, spaces};
pub(crate) use run::run;
use run_directory::RunDirectory;
pub use settings::{FORWARDS_WITHOUT_EFFECT, has_forwarding};
pub(crate) use settings::{Purpose, refuse_via};
pub use up::up;

/// Returns the control socket of a tunnel: this user's own if it is running, else that of `convoy up`.
pub fn control(name: &InterfaceName) -> PathBuf {
    let system = places::control(name);
    let own = RunDirectory::find().map(|directory| directory.control(name));
    match own {
        Some(own) if geteuid().is_root() && listens(&system) || !listens(&own) => system,
        Some(own) => own,
        None => system,
    }
}

/// Lists the control sockets of this user's own tunnels.
pub fn all() -> Vec<(InterfaceName, PathBuf)> {
    let Some(directory) = RunDirectory::find() else {
        return Vec::new();
    };
    let names = directory.names().into_iter();
    names
        .map(|name| (name.clone(), directory.control(&name)))
        .filter(|(_, path)| listens(path))
        .collect()
}

/// Returns the socket where commands join the tunnel that `name` means.
pub(crate) fn joined(name: &Path) -> anyhow::Result<Option<UnixStream>> {
    let name = name.to_str().and_then(|name| name.parse().ok());
    let Some(name): Option<InterfaceName> = name else {
        return Ok(None);
    };
    let path = RunDirectory::open()?.commands(&name);
    connect(&path, ENDING_TIME)
}

/// Connects to a supervisor; `None` if nothing listens there.
fn connect(path: &Path, limit: Duration) -> anyhow::Result<Option<UnixStream>> {
    match connect_within(path, limit) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            bail!("the supervisor at {} does not answer", path.display())
        }
        Err(_) => Ok(None),
    }
}

/// Warns about settings that have no effect.
pub(crate) fn warn(config: &Config, purpose: Purpose) {
    for warning in settings::warnings(config, purpose) {
        logging::say(&format!("convoy: warning: {warning}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, sync::mpsc, thread};

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    #[test]
    fn a_supervisor_that_hangs_is_neither_waited_for_nor_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.exec");
        let connected = |path: &Path| connect(path, Duration::from_millis(10));
        assert!(connected(&path).unwrap().is_none());
        let listener = UnixListener::bind(&path).unwrap();
        assert!(connected(&path).unwrap().is_some());
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let (ended, told) = mpsc::channel();
        thread::spawn(move || ended.send(connect(&path, Duration::from_millis(10))));
        let hanging = told.recv_timeout(Duration::from_secs(20));
        hanging.expect("it does not wait").unwrap_err();
    }
}
