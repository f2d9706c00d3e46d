//! One socket in the event loop, which is woken for as little as possible.
//!
//! The loop waits to read for as long as the socket lives. To write it waits only while the socket is
//! full: a registration for both would wake it for every datagram that leaves the send buffer.

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

/// A socket with quinn-udp's state for it.
#[derive(Debug)]
pub(super) struct Endpoint {
    socket: AsyncFd<Fd<UdpSocket>>,
    /// The same socket, while it is full.
    full: Option<AsyncFd<Fd<OwnedFd>>>,
    state: UdpSocketState,
    /// Read once: the state's own value falls to 1 for good after one error.
    max_segments: usize,
    receive_offload: bool,
}

/// A descriptor that is registered.
#[derive(Debug)]
struct Fd<T>(T);

impl<T: AsFd> AsRawFd for Fd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().0.as_fd()
    }
}

impl Endpoint {
    /// Makes the socket part of the current tokio runtime.
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
        // An error shows itself again at the next receive.
        drop(self.socket.readable().await);
    }

    pub(super) async fn writable(&self) {
        match &self.full {
            Some(full) => drop(full.writable().await),
            None => std::future::pending().await,
        }
    }

    /// Receives even if tokio has not heard yet that the socket is readable: a loop that is never
    /// idle rarely turns the reactor.
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

    /// Lets [`Endpoint::writable`] complete when the socket has room.
    ///
    /// Without a descriptor to spare the kernel is said to lack buffers: then it is asked again soon.
    fn watch_room(&mut self) -> io::Result<()> {
        if self.full.is_none() {
            let again = self.as_fd().try_clone_to_owned();
            let full = again.and_then(|fd| register(fd, Interest::WRITABLE));
            self.full = Some(full.map_err(|_| io::Error::from_raw_os_error(libc::ENOBUFS))?);
        }
        Ok(())
    }

    /// Whether quinn-udp has met `EIO` or `EINVAL`, and made good for it by trying without the TOS.
    fn has_fallen_back(&self) -> bool {
        self.state.max_gso_segments() < self.max_segments
    }

    /// quinn-udp leaves out the IPv4 TOS, and with it ECN, for good after `EIO` or `EINVAL`.
    pub(super) fn recreate_state(&mut self) {
        let socket = &self.socket.get_ref().0;
        let Ok(state) = UdpSocketState::new(socket.into()) else {
            return;
        };
        self.state = state;
        if let Err(error) = options::adjust(self.as_fd(), self.receive_offload) {
            tracing::warn!(%error, "Cannot set the options of a UDP socket again");
        }
    }
}

fn register<T: AsFd>(fd: T, interest: Interest) -> io::Result<AsyncFd<Fd<T>>> {
    // SAFETY: the descriptors that are registered own theirs, keep it open until they are dropped,
    // and give no other.
    Ok(unsafe { AsyncFd::register_with_interest(Fd(fd), interest) }?)
}

/// Runs `operation` even if tokio has not heard that the descriptor is ready. `WouldBlock` clears
/// what tokio believes.
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
        let mut endpoint = Endpoint::register(socket, false).unwrap();
        endpoint.watch_room().unwrap();
        endpoint.writable().await;
        let transmit = Transmit {
            destination: receiver.local_addr().unwrap(),
            ecn: None,
            contents: b"there is room",
            segment_size: None,
            src_ip: None,
        };
        endpoint.send(&transmit).unwrap();
        assert!(endpoint.full.is_none());
    }
}
