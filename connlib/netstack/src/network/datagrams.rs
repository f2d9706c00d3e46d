use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    task::{Context, Poll},
};

use tokio::net::UdpSocket;

/// Sends and receives datagrams.
#[derive(Debug)]
pub enum Datagrams {
    /// A UDP socket of the kernel.
    Kernel(UdpSocket),
    /// Datagrams that no socket carries.
    Other(Box<dyn Packets>),
}

/// Sends datagrams, and receives them for one task. Nothing here waits except [`Packets::poll_readable`].
pub trait Packets: fmt::Debug + Send + Sync {
    /// The address that it is bound to.
    ///
    /// # Errors
    /// Those of getsockname(2).
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// From now on, hears this address only, and sends to it what is sent without an address.
    ///
    /// # Errors
    /// Those of connect(2).
    fn connect(&self, to: SocketAddr) -> io::Result<()>;

    /// Sends a datagram to an address, or to the one that it is connected to.
    ///
    /// # Errors
    /// `WouldBlock` if it was discarded because too much waits already; those of send(2).
    fn try_send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<usize>;

    /// The next datagram, as much of it as fits, and where it is from.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Waits until there is a datagram. Wakes the task that has called it last.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;
}

impl Datagrams {
    /// The address that it is bound to.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr(),
            Self::Other(packets) => packets.local_addr(),
        }
    }

    /// Connects to an address; then nothing that can be sent has to wait.
    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => {
                socket.connect(to).await?;
                // Until the runtime knows that it is, nothing could be sent without waiting.
                socket.writable().await
            }
            Self::Other(packets) => packets.connect(to),
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.readable().await,
            Self::Other(packets) => {
                poll_fn(|context| packets.poll_readable(context)).await;
                Ok(())
            }
        }
    }

    pub(crate) fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.try_recv(buffer),
            Self::Other(packets) => Ok(packets.try_recv_from(buffer)?.0),
        }
    }

    pub(crate) fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Kernel(socket) => socket.try_recv_from(buffer),
            Self::Other(packets) => packets.try_recv_from(buffer),
        }
    }

    /// The next datagram, as much of it as fits, and where it is from.
    ///
    /// # Errors
    /// Those of recv(2).
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        if let Self::Kernel(socket) = self {
            return socket.recv_from(buffer).await;
        }
        loop {
            self.readable().await?;
            match self.try_recv_from(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }

    pub(crate) fn try_send(&self, datagram: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.try_send(datagram),
            Self::Other(packets) => packets.try_send(datagram, None),
        }
    }

    pub(crate) fn try_send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.try_send_to(datagram, to),
            Self::Other(packets) => packets.try_send(datagram, Some(to)),
        }
    }

    /// Sends a datagram to an address. Only the kernel's sockets wait for room.
    ///
    /// # Errors
    /// Those of send(2), and `WouldBlock` if it was discarded.
    pub async fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.send_to(datagram, to).await,
            Self::Other(packets) => packets.try_send(datagram, Some(to)),
        }
    }
}
