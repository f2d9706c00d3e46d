//! Starts a tunnel process: hands settings and descriptors over, and waits until it is ready.
//!
//! The process is a child of this one, or a service manager starts it with privileges that this one lacks: then
//! the manager listens on `/run/convoy/NAME.launch`.

use std::{
    collections::BTreeMap,
    env, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use convoy_config::InterfaceName;
use convoy_daemon::{
    places::Sockets,
    supervised::start::{HandedOver, Start},
};
use convoy_process::{
    PROGRAM,
    background::Report,
    message::{self, Connection, Lost},
    socket::connect_within,
};
use tokio::time::timeout;

use super::process::{ENDING_TIME, Process, Starting};

/// Time limit for a tunnel process to become ready.
const START_TIME: Duration = Duration::from_secs(20);

/// The environment variables that choose what is logged; a tunnel process gets them from its supervisor.
const LOG: [&str; 2] = ["LOG_LEVEL", "RUST_LOG"];

/// The environment variable that tells the journal's stream from others.
const JOURNAL: &str = "JOURNAL_STREAM";

/// The hidden command, see [`crate::privileges`].
pub const STEP: &str = "tunnel-process";

/// Everything that a new tunnel process needs.
#[derive(Debug)]
pub(crate) struct Spawn {
    /// Name of the interface.
    pub(crate) name: InterfaceName,
    /// Its settings.
    pub(crate) settings: Start,
    /// Its descriptors; supervisors connect at [`convoy_daemon::places::tunnel`].
    pub(crate) descriptors: HandedOver,
    /// Where the sockets listen.
    pub(crate) sockets: Sockets,
}

/// Starts a tunnel process; returns once it is ready, and without it if a service manager has started it.
///
/// Settings and descriptors arrive through its standard input, a socket, so that no other program that this one starts
/// inherits them. The daemon then reports through it ([`Report`]).
pub(super) async fn spawn(spawn: &Spawn) -> anyhow::Result<Option<Starting>> {
    let (ours, mut process) = match launch(spawn.sockets.launcher.as_deref(), START_TIME)? {
        Some(launched) => (launched, None),
        None => {
            let (ours, process) = start(&spawn.name)?;
            (ours, Some(Starting::new(process)))
        }
    };
    let reported = async {
        let descriptors = spawn.descriptors.each_ref().map(AsFd::as_fd);
        match message::send(&ours, &spawn.settings, &descriptors) {
            // If it has already died, the report gives the reason.
            Ok(()) | Err(Lost::Closed) => {}
            Err(error) => return Err(error),
        }
        ours.set_nonblocking(true)?;
        let ours = tokio::net::UnixStream::from_std(ours)?;
        Connection::new(ours).next::<Report>().await
    };
    let failure = match timeout(START_TIME, reported).await {
        Ok(Ok(Report::Ready)) => return Ok(process),
        Ok(Ok(Report::Failed { reason })) => Some(reason),
        Ok(Err(Lost::Closed)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("not ready within {START_TIME:?}")),
    };
    let status = match &mut process {
        Some(process) => process.end_within(ENDING_TIME).await,
        None => None,
    };
    match (failure, status) {
        (None, Some(status)) => bail!("the tunnel process ended before it was ready ({status})"),
        (None, None) => bail!("the tunnel process ended before it was ready"),
        (Some(reason), _) => bail!("cannot start the tunnel: {reason}"),
    }
}

/// Returns the environment variables that choose what is logged.
pub(crate) fn log() -> BTreeMap<String, String> {
    let chosen = |name: &str| Some((name.to_owned(), env::var(name).ok()?));
    LOG.into_iter().filter_map(chosen).collect()
}

/// Asks the service manager, if there is one, to start a tunnel.
fn launch(path: Option<&Path>, limit: Duration) -> anyhow::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let Some(path) = path else {
        return Ok(None);
    };
    match connect_within(path, limit) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot connect to {}", path.display())),
    }
}

/// Starts a child and returns the other end of its standard input.
fn start(name: &InterfaceName) -> anyhow::Result<(UnixStream, Process)> {
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket")?;
    let child = Command::new(PROGRAM)
        .arg0(env::args_os().next().unwrap_or_else(|| "convoy".into()))
        .args([STEP, "--", name.as_str()])
        .env_clear()
        .envs(env::var_os(JOURNAL).map(|stream| (JOURNAL, stream)))
        .stdin(OwnedFd::from(theirs))
        .spawn();
    let child = child.context("cannot start the tunnel process")?;
    let process = Process::of_child(child).context("cannot watch the tunnel process")?;
    Ok((ours, process))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, process, sync::mpsc, thread};

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    #[test]
    fn a_service_manager_that_hangs_is_not_waited_for_for_ever() {
        let path = env::temp_dir().join(format!("convoy-keeper-{}.launch", process::id()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _only = UnixStream::connect(&path).unwrap();
        let (ended, told) = mpsc::channel();
        let there = path.clone();
        thread::spawn(move || ended.send(launch(Some(&there), Duration::from_millis(10))));
        let launched = told.recv_timeout(Duration::from_secs(20));
        fs::remove_file(&path).unwrap();
        launched.expect("it does not wait").unwrap_err();
    }
}
