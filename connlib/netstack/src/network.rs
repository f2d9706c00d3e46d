//! The seam between forwarding and the networks that it connects: the host's, or that inside a tunnel.

mod kernel;

use std::{fmt, future::Future, io, net::SocketAddr, os::fd::OwnedFd, pin::Pin};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
};

pub(crate) use kernel::close_by_reset;
pub use kernel::{Host, Kernel};

/// What a network answers, once it has.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Opens connections, listeners and flows in one network.
pub trait Network: fmt::Debug + Send + Sync {
    /// The addresses of a name as this network sees it, in the order in which they should be tried.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>>;

    /// Connects to an address.
    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream>;

    /// Listens on an address; port 0 is any free one.
    fn listen(&self, at: SocketAddr) -> Answer<'_, TcpListener>;

    /// Opens a UDP socket on an address; port 0 is any free one.
    fn datagrams(&self, at: SocketAddr) -> Answer<'_, UdpSocket>;
}

/// Opens unbound, unconnected sockets of the kernel in one network namespace.
///
/// A socket belongs to the namespace in which it was created, so everything else, such as `connect`, can be done by
/// another process: see [`Kernel`].
pub trait OpenSockets: fmt::Debug + Send + Sync {
    /// A socket that does not block and is closed by `exec`.
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd>;

    /// The addresses of a name as this namespace sees it.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>>;
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }
}

/// A connection, which the relay moves bytes between.
#[derive(Debug)]
pub enum Stream {
    /// A TCP socket of the kernel, in whatever namespace.
    Kernel(TcpStream),
    /// A connection that is not a socket.
    Other(Box<dyn Duplex>),
}

/// Reads and writes bytes, and can close each direction by itself.
pub trait Duplex: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Duplex for T {}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Kernel(stream)
    }
}

impl Stream {
    /// This end's address, if it has one.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr().ok(),
            Self::Other(_) => None,
        }
    }

    /// Writes all of some bytes.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.write_all(bytes).await,
            Self::Other(stream) => stream.write_all(bytes).await,
        }
    }

    pub(crate) fn into_duplex(self) -> Box<dyn Duplex> {
        match self {
            Self::Kernel(socket) => Box::new(socket),
            Self::Other(stream) => stream,
        }
    }
}
