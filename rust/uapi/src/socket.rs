//! The socket of `wg`: where it is, and one that another process has bound.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use nix::sys::socket::{Backlog, getsockopt, listen, sockopt};
use tracing::warn;

use convoy_process::socket::SocketFile;

/// Where `wg` looks for the sockets of userspace implementations.
pub const DIRECTORY: &str = "/var/run/wireguard";

/// The socket file of `interface`.
pub fn path(interface: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{interface}.sock"))
}

/// Listens on a socket that another process has bound (`WG_UAPI_FD`).
///
/// An unnamed socket has no file to remove.
pub fn adopt(fd: OwnedFd) -> anyhow::Result<(UnixListener, Option<SocketFile>)> {
    let is_listening = getsockopt(&fd, sockopt::AcceptConn).unwrap_or(false);
    ensure!(is_listening, "WG_UAPI_FD is not a listening socket");
    // Clients learn this process's number from the kernel rather than that of the process that called listen(2) first.
    listen(&fd, Backlog::MAXCONN).context("cannot listen on WG_UAPI_FD")?;
    let listener = UnixListener::from(fd);
    let address = listener
        .local_addr()
        .context("WG_UAPI_FD is not a Unix socket")?;
    let file = match address.as_pathname().map(SocketFile::of) {
        // Its directory may belong to another user.
        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            warn!("cannot watch the UAPI socket for removal: {error}");
            None
        }
        file => file.transpose()?,
    };
    Ok((listener, file))
}
