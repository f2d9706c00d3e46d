//! The seam between forwarding and the networks that it connects: the host's, or that inside a tunnel.

mod batch;
mod datagrams;
pub mod errors;
mod guarded;
pub mod hops;
mod kernel;
mod listener;
pub mod names;
mod stream;
mod train;
pub mod transparent;

use std::{
    fmt,
    future::Future,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    pin::Pin,
};

pub use convoy_types::Family;
pub use datagrams::{Datagrams, Packets};
pub use guarded::Guarded;
pub use kernel::set_options;
pub use kernel::{Host, Kernel};
pub use listener::{Accept, Listener};
pub use names::{NameServers, WithNames};
pub use stream::{Duplex, Stream};
pub use train::{Received, Train};

pub use batch::with_batch;
pub use datagrams::Sent;

use crate::{counters::Refusal, translators::Discovery};

/// The answer of a network, once it has one.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Opens connections, listeners and flows in one network.
pub trait Network: fmt::Debug + Send + Sync {
    /// Returns whether a client may reach a target, which it has named itself.
    ///
    /// # Errors
    /// The reason why not.
    fn check(&self, _to: SocketAddr) -> Result<(), Refusal> {
        Ok(())
    }

    /// Begins to find out what [`Self::check`] must know of a target, and returns what to wait for until then; `None` if
    /// it can tell now.
    fn discover(&self, _to: SocketAddr) -> Option<Discovery> {
        None
    }

    /// The addresses of a name as this network sees it, in the order in which they should be tried.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>>;

    /// Returns whether each [`Self::resolve`] takes a thread, and keeps it although nobody waits for the answer any
    /// more.
    fn takes_threads(&self) -> bool {
        false
    }

    /// Connects to an address.
    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream>;

    /// Listens on an address; port 0 is any free one.
    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener>;

    /// Opens a UDP socket on an address; port 0 is any free one.
    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams>;

    /// Opens a UDP socket for clients: of each datagram it knows to which address it came.
    fn listening_datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.datagrams(at)
    }

    /// Opens a UDP socket on an address whose port others share; each must be connected. Fails where networks have no
    /// such sockets.
    fn datagrams_beside(&self, _at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
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

    /// Returns whether each [`Self::resolve`] takes a thread: see [`Network::takes_threads`].
    fn takes_threads(&self) -> bool {
        false
    }
}

/// Any address of the same family, and any port.
pub fn any_of(address: &SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}
