//! One UDP socket, registered so that it wakes the event loop as rarely as possible.
//!
//! The loop always watches the socket for readability, and for writability only while it is full. A
//! registration for both would wake the loop for every datagram that leaves the send buffer.

use std::{
    io,
    net::UdpSocket,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use quinn_udp::{Transmit, UdpSocketState};
use socket2::Socket;
use tokio::io::Interest;

use super::{options, watched::Watched};
use crate::receive::ReceiveBuffers;

/// A socket that tokio watches, with quinn-udp's state for it.
#[derive(Debug)]
pub(super) struct AsyncSocket {
    socket: Watched<UdpSocket>,
    /// A duplicate of the descriptor. It is kept, so that a full socket needs no other.
    duplicate: Arc<OwnedFd>,
    /// The duplicate, watched for writability; present only while the socket is full.
    full: Option<Watched<Arc<OwnedFd>>>,
    state: UdpSocketState,
    /// The most segments in a batch. Read once: quinn-udp's value falls to 1 for good after one error.
    max_segments: usize,
    receive_offload: bool,
    /// Whether the socket, if IPv4, now fragments by the route's MTU.
    heeds_route_mtu: bool,
}

impl AsFd for AsyncSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.inner().as_fd()
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
            duplicate: Arc::new(socket.as_fd().try_clone_to_owned()?),
            socket: Watched::new(socket, Interest::READABLE)?,
            full: None,
            heeds_route_mtu: false,
            state,
        })
    }

    /// Another descriptor of the socket.
    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.duplicate)
    }

    pub(super) fn segmentation(&self) -> bool {
        self.max_segments > 1
    }

    pub(super) fn receive_offload(&self) -> bool {
        self.receive_offload
    }

    /// Returns whether a receive call may succeed; `is_busy` if the event loop has not waited lately.
    pub(super) fn is_worth_receiving(&mut self, is_busy: bool, now: Duration) -> bool {
        self.socket.is_worth_trying(is_busy, now)
    }

    /// Returns whether a full socket may have room, or is not full.
    pub(super) fn is_worth_sending(&mut self, now: Duration) -> bool {
        let full = self.full.as_mut();
        full.is_none_or(|full| full.is_worth_trying(true, now))
    }

    pub(super) async fn readable(&self) {
        self.socket.ready().await;
    }

    pub(super) async fn writable(&self) {
        match &self.full {
            Some(full) => full.ready().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn receive(&mut self, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        let Self { socket, state, .. } = self;
        socket.run(|socket| buffers.fill(|slices, meta| state.recv(socket.into(), slices, meta)))
    }

    /// Sets whether this IPv4 socket fragments the next datagram by the route's MTU.
    pub(super) fn heed_route_mtu(&mut self, is_heeded: bool) -> io::Result<()> {
        if self.heeds_route_mtu != is_heeded {
            options::heed_route_mtu(self.as_fd(), is_heeded)?;
            self.heeds_route_mtu = is_heeded;
        }
        Ok(())
    }

    pub(super) fn send(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let socket = self.socket.inner();
        let send = || self.state.try_send(socket.into(), transmit);
        let result = match &mut self.full {
            Some(full) => full.run(|_| send()),
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

    /// Makes [`AsyncSocket::writable`] complete once the socket has room.
    ///
    /// Fails with `ENOBUFS` if the kernel has no memory for the watch, so that the caller retries.
    fn watch_room(&mut self) -> io::Result<()> {
        if self.full.is_none() {
            let full = Watched::new(Arc::clone(&self.duplicate), Interest::WRITABLE);
            self.full = Some(full.map_err(|_| io::Error::from_raw_os_error(libc::ENOBUFS))?);
        }
        Ok(())
    }

    /// Returns whether quinn-udp has met `EIO` or `EINVAL` and fallen back to sending without the IPv4 TOS.
    fn has_fallen_back(&self) -> bool {
        self.state.max_gso_segments() < self.max_segments
    }

    /// Replaces quinn-udp's state, which after `EIO` or `EINVAL` omits the IPv4 TOS, and so ECN, for good.
    pub(super) fn recreate_state(&mut self) {
        let socket = self.socket.inner();
        let Ok(state) = UdpSocketState::new(socket.into()) else {
            return;
        };
        self.state = state;
        self.heeds_route_mtu = false;
        if let Err(error) = options::adjust(self.as_fd(), self.receive_offload) {
            tracing::warn!(%error, "Cannot restore the options of a UDP socket");
        }
    }
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
        let watched = socket.full.as_ref().unwrap().inner();
        // There may be no descriptor left to open.
        assert!(Arc::ptr_eq(watched, &socket.duplicate));
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
