//! The operations on sockets and routes that need `CAP_NET_ADMIN`, which another process may have.

use std::{fmt::Debug, io, os::fd::BorrowedFd};

use socket2::{Domain, Protocol, SockRef};

use super::{
    SOCKET_BUFFER_BYTES, options,
    routes::{Flow, Routes},
};

/// Does for the UDP sockets what this process may lack the privileges for.
pub trait Privileged: Debug + Send + Sync {
    /// Sets the firewall mark of UDP sockets, and grows their buffers as far as possible. May wait for another
    /// process, for a bounded time: never call it in the event loop.
    ///
    /// # Errors
    /// As `setsockopt(2)` with `SO_MARK`; only if a socket has another mark.
    fn prepare(&self, sockets: &[BorrowedFd<'_>], mark: u32) -> io::Result<()>;

    /// Sets the firewall mark of a TCP socket that is not connected yet. May wait as [`Self::prepare`].
    ///
    /// # Errors
    /// As `setsockopt(2)` with `SO_MARK`.
    fn prepare_stream(&self, socket: BorrowedFd<'_>, mark: u32) -> io::Result<()>;

    /// Makes the kernel forget the path MTU that it has learnt for the flow, if possible. Never waits.
    fn forget_learnt_mtu(&self, flow: &Flow);
}

/// Uses the privileges of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPrivileges;

impl Privileged for OwnPrivileges {
    fn prepare(&self, sockets: &[BorrowedFd<'_>], mark: u32) -> io::Result<()> {
        for socket in sockets {
            let socket = SockRef::from(socket);
            set_mark(&socket, Protocol::UDP, mark)?;
            options::grow_buffers(&socket, SOCKET_BUFFER_BYTES);
        }
        Ok(())
    }

    fn prepare_stream(&self, socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
        set_mark(&SockRef::from(&socket), Protocol::TCP, mark)
    }

    fn forget_learnt_mtu(&self, flow: &Flow) {
        Routes::new().forget_learnt_mtu(*flow);
    }
}

fn set_mark(socket: &SockRef<'_>, protocol: Protocol, mark: u32) -> io::Result<()> {
    let is_ip = [Domain::IPV4, Domain::IPV6].contains(&socket.domain()?);
    if !is_ip || socket.protocol()? != Some(protocol) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if socket.mark()? != mark {
        socket.set_mark(mark)?;
    }
    Ok(())
}

/// Returns whether all sockets have this firewall mark.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn have_mark(sockets: &[BorrowedFd<'_>], mark: u32) -> io::Result<bool> {
    for socket in sockets {
        if SockRef::from(socket).mark()? != mark {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Grows the sockets' buffers as far as this process may.
pub fn grow_buffers(sockets: &[BorrowedFd<'_>]) {
    for socket in sockets {
        options::grow_buffers(&SockRef::from(socket), SOCKET_BUFFER_BYTES);
    }
}
