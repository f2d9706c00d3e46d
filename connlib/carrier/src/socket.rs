//! A TCP socket that is read and written without waiting, and watched by tokio.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream as StdTcpStream},
    os::fd::OwnedFd,
    task::{Context, Poll},
    time::Duration,
};

use nix::sys::socket::setsockopt;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
        socket_with, sockopt,
    },
};
use tokio::{io::Interest, net::TcpStream};

/// Silence after which the kernel asks whether the server is there, and pause between such questions.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);
/// Unanswered questions that end the connection.
const KEEPALIVES: u32 = 4;
/// Longest time that sent bytes may stay unacknowledged, in milliseconds; then the connection ends.
const LONGEST_UNACKNOWLEDGED: u32 = 20_000;
/// Most bytes in the kernel that it has not sent yet. More would only delay what follows.
const MOST_UNSENT: u32 = 128 << 10;

mod option {
    //! An option that libraries lack.
    #![allow(
        missing_docs,
        unreachable_pub,
        reason = "the macro of nix decides the visibility"
    )]
    use nix::{libc, setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        UnsentBytes,
        SetOnly,
        libc::IPPROTO_TCP,
        libc::TCP_NOTSENT_LOWAT,
        u32
    );
}

/// Makes a socket that can connect to `server`.
pub(crate) fn open(server: SocketAddr) -> io::Result<OwnedFd> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // Frames are gathered here already.
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVES)?;
    sockopt::set_tcp_user_timeout(&socket, LONGEST_UNACKNOWLEDGED)?;
    setsockopt(&socket, option::UnsentBytes, &MOST_UNSENT)?;
    Ok(socket)
}

/// A socket that connects, or has connected.
///
/// tokio learns of readiness only when its reactor runs, and a busy loop rarely lets it: operations do not depend on it.
#[derive(Debug)]
pub(crate) struct Socket(TcpStream);

impl Socket {
    pub(crate) fn connect(socket: OwnedFd, server: SocketAddr) -> io::Result<Self> {
        match connect(&socket, &server) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        TcpStream::from_std(StdTcpStream::from(socket)).map(Self)
    }

    /// Returns whether the connection has been made.
    ///
    /// # Errors
    /// The reason why it cannot be made.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        sockopt::socket_error(&self.0)??;
        match self.0.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                // Readiness that has said nothing, so that the next wait waits.
                let not_yet = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = self.0.try_io(Interest::WRITABLE, not_yet);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads; 0 at the end of the stream.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.run(Interest::READABLE, || {
            let (count, _) = recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT)?;
            Ok(count)
        })
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.run(Interest::WRITABLE, || {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            Ok(send(&self.0, bytes, flags)?)
        })
    }

    /// Ready once tokio has seen the socket become readable or writable, whichever is asked for.
    pub(crate) fn poll_ready(
        &self,
        readable: bool,
        writable: bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        // The next operation reports any error.
        let is_readable = readable && self.0.poll_read_ready(cx).is_ready();
        let is_writable = writable && self.0.poll_write_ready(cx).is_ready();
        match is_readable || is_writable {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Runs `operation` even if tokio has not seen the socket become ready. `WouldBlock` clears tokio's remembered
    /// readiness.
    fn run<R>(
        &self,
        interest: Interest,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut tried = false;
        let result = self.0.try_io(interest, || {
            tried = true;
            operation()
        });
        match tried {
            true => result,
            false => operation(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Socket::read(self, buffer)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Socket::write(self, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
