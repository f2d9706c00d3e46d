//! The sockets of a tunnel in its user's directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::bail;
use convoy_config::InterfaceName;
use convoy_daemon::places::Sockets as TunnelSockets;
use convoy_process::socket;
use convoy_supervision::control::Control;
use tokio::{
    io::AsyncReadExt as _,
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

use super::{commands::DELIVERY_TIME, run_directory::RunDirectory};

/// The pause after a failed accept(2).
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Time limit for an earlier tunnel to end.
const ENDING_TIME: Duration = Duration::from_secs(2 * DELIVERY_TIME.as_secs());

/// The socket where commands join; dropping it removes this socket and those of the tunnel process.
#[derive(Debug)]
pub(super) struct Sockets {
    directory: PathBuf,
    commands: UnixListener,
    path: PathBuf,
    /// Sockets of the tunnel process.
    pub(super) tunnel: TunnelSockets,
}

impl Sockets {
    /// Claims the name for this supervisor, for commands and for status requests.
    pub(super) async fn bind(name: &InterfaceName) -> anyhow::Result<(Self, Control)> {
        let directory = RunDirectory::open()?;
        let path = directory.commands(name);
        outlast_former(&path, name).await?;
        let (commands, _) = socket::bind(&path)?;
        commands.set_nonblocking(true)?;
        let sockets = Self {
            commands: UnixListener::from_std(commands)?,
            path,
            tunnel: directory.sockets(name),
            directory: directory.path().to_owned(),
        };
        let control = Control::listen(&directory.control(name))?;
        Ok((sockets, control))
    }

    /// Returns the directory, which is hidden from commands.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits for a command. May be cancelled.
    pub(super) async fn command(&self) -> io::Result<UnixStream> {
        match self.commands.accept().await {
            Ok((command, _)) => Ok(command),
            Err(error) => {
                // The next call may well fail at once: there are no descriptors.
                sleep(ACCEPT_PAUSE).await;
                Err(error)
            }
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.tunnel.remove();
        // It may already have gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// Waits until a supervisor that is ending has ended; fails if it is not ending.
async fn outlast_former(path: &Path, name: &InterfaceName) -> anyhow::Result<()> {
    let Ok(mut former) = UnixStream::connect(path).await else {
        return Ok(());
    };
    // One that keeps running hands over its namespaces; one that is ending accepts no connection, and the kernel closes
    // ours when it ends.
    match timeout(ENDING_TIME, former.read_u8()).await {
        Ok(Err(_)) => Ok(()),
        Ok(Ok(_)) => bail!(
            "{name} runs already; join it with `convoy exec {name} -- COMMAND`, or end it with `convoy down {name}`"
        ),
        Err(_) => bail!("the former tunnel {name} does not end"),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    #[tokio::test]
    async fn a_socket_that_cannot_accept_does_not_keep_the_supervisor_busy() {
        // It does not listen, so that each call fails at once, as without descriptors.
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let idle = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let sockets = Sockets {
            commands: UnixListener::from_std(idle.into()).unwrap(),
            path: directory.path().join("wg0.exec"),
            tunnel: TunnelSockets {
                uapi: directory.path().join("wg0.sock"),
                supervisors: directory.path().join("wg0.tunnel"),
                launcher: None,
            },
            directory: directory.path().to_owned(),
        };
        let accepted = timeout(Duration::from_millis(20), sockets.command()).await;
        accepted.expect_err("it did not wait");
        let accepted = timeout(ACCEPT_PAUSE + ENDING_TIME, sockets.command()).await;
        accepted.unwrap().unwrap_err();
    }
}
