//! One UDP socket, registered so that it wakes the event loop as rarely as possible.
//!
//! The loop watches it for readability all its life, and for writability only while it is full: a
//! registration for both would wake the loop for every datagram that leaves the send buffer.

use std::{
    io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use quinn_udp::{Transmit, UdpSocketState};
use socket2::Socket;
use tokio::io::{Interest, unix::AsyncFd};

use super::options;
use crate::receive::ReceiveBuffers;

/// A socket that tokio watches, with quinn-udp's state for it.
#[derive(Debug)]
pub(super) struct AsyncSocket {
    socket: AsyncFd<Fd<UdpSocket>>,
    /// A duplicate of its descriptor, watched for writability; only while the socket is full.
    full: Option<AsyncFd<Fd<OwnedFd>>>,
    state: UdpSocketState,
    /// Read once: quinn-udp's own value falls to 1 for good after one error.
    max_segments: usize,
    receive_offload: bool,
}

/// A registered descriptor.
#[derive(Debug)]
struct Fd<T>(T);

impl<T: AsFd> AsRawFd for Fd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for AsyncSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().0.as_fd()
    }
}

impl AsyncSocket {
    /// Registers the socket with the current tokio runtime.
    pub(super) fn register(socket: Socket, receive_offload: bool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into())?;
        options::adjust(socket.as_fd(), receive_offload)?;
        Ok(Self {
            max_segments: state.max_gso_segments(),
            receive_offload: receive_offload && state.gro_segments() > 1,
            socket: register(socket, Interest::READABLE)?,
            full: None,
            state,
        })
    }

    pub(super) fn segmentation(&self) -> bool {
        self.max_segments > 1
    }

    pub(super) fn receive_offload(&self) -> bool {
        self.receive_offload
    }

    pub(super) fn is_readable(&self) -> bool {
        self.socket.try_io(Interest::READABLE, |_| Ok(())).is_ok()
    }

    pub(super) async fn readable(&self) {
        // The next receive reports any error.
        drop(self.socket.readable().await);
    }

    pub(super) async fn writable(&self) {
        match &self.full {
            Some(full) => drop(full.writable().await),
            None => std::future::pending().await,
        }
    }

    /// Receives even if tokio has not seen the socket become readable: a loop that is never idle
    /// rarely turns the reactor.
    pub(super) fn receive(&self, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        let socket = &self.socket.get_ref().0;
        now_or_when_ready(&self.socket, Interest::READABLE, || {
            buffers.fill(|slices, meta| self.state.recv(socket.into(), slices, meta))
        })
    }

    pub(super) fn send(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let socket = &self.socket.get_ref().0;
        let send = || self.state.try_send(socket.into(), transmit);
        let result = match &self.full {
            Some(full) => now_or_when_ready(full, Interest::WRITABLE, send),
            None => send(),
        };
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.watch_room()?,
            _ => self.full = None,
        }
        if result.is_ok() && self.has_fallen_back() {
            self.recreate_state();
        }
        result
    }

    /// Lets [`AsyncSocket::writable`] complete once the socket has room.
    ///
    /// If no descriptor is left to watch, reports `ENOBUFS`, so that the caller retries soon.
    fn watch_room(&mut self) -> io::Result<()> {
        if self.full.is_none() {
            let again = self.as_fd().try_clone_to_owned();
            let full = again.and_then(|fd| register(fd, Interest::WRITABLE));
            self.full = Some(full.map_err(|_| io::Error::from_raw_os_error(libc::ENOBUFS))?);
        }
        Ok(())
    }

    /// Whether quinn-udp has met `EIO` or `EINVAL` and has fallen back to sending without the TOS.
    fn has_fallen_back(&self) -> bool {
        self.state.max_gso_segments() < self.max_segments
    }

    /// Starts quinn-udp's state afresh: after `EIO` or `EINVAL` it omits the IPv4 TOS, and with it ECN,
    /// for good.
    pub(super) fn recreate_state(&mut self) {
        let socket = &self.socket.get_ref().0;
        let Ok(state) = UdpSocketState::new(socket.into()) else {
            return;
        };
        self.state = state;
        if let Err(error) = options::adjust(self.as_fd(), self.receive_offload) {
            tracing::warn!(%error, "Cannot restore the options of a UDP socket");
        }
    }
}

fn register<T: AsFd>(fd: T, interest: Interest) -> io::Result<AsyncFd<Fd<T>>> {
    // SAFETY: `Fd` wraps only types that own their descriptor, keep it open until they are dropped,
    // and always return the same one.
    Ok(unsafe { AsyncFd::register_with_interest(Fd(fd), interest) }?)
}

/// Runs `operation` even if tokio has not seen the descriptor become ready. `WouldBlock` clears the
/// readiness that tokio remembers.
fn now_or_when_ready<T, R>(
    fd: &AsyncFd<Fd<T>>,
    interest: Interest,
    mut operation: impl FnMut() -> io::Result<R>,
) -> io::Result<R>
where
    T: AsFd,
{
    let mut tried = false;
    let result = fd.try_io(interest, |_| {
        tried = true;
        operation()
    });
    if tried { result } else { operation() }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use socket2::{Domain, Type};

    use super::*;

    #[tokio::test]
    async fn a_socket_is_watched_for_room_until_a_datagram_went() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let mut socket = AsyncSocket::register(socket, false).unwrap();
        socket.watch_room().unwrap();
        socket.writable().await;
        let transmit = Transmit {
            destination: receiver.local_addr().unwrap(),
            ecn: None,
            contents: b"there is room",
            segment_size: None,
            src_ip: None,
        };
        socket.send(&transmit).unwrap();
        assert!(socket.full.is_none());
    }
}
