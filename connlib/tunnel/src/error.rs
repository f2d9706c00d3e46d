//! The errors of starting and changing a tunnel, and the ways in which it ends.

use std::io;

/// Why the tunnel could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel lacks a feature that was switched on.
    #[error("this kernel has no {feature}: leave {option} on auto")]
    Unsupported {
        /// The missing feature.
        feature: &'static str,
        /// The option that asked for it.
        option: &'static str,
    },
    /// A thread, a socket or the event loop could not be created.
    #[error("cannot start the data path: {0}")]
    Io(#[from] io::Error),
}

/// Why a [`DeviceUpdate`](convoy_proto::config::DeviceUpdate) was refused; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The UDP sockets could not be opened on the port asked for.
    #[error("cannot open the UDP sockets on port {port}: {source}")]
    Sockets {
        /// The port asked for.
        port: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The firewall mark could not be set on the UDP sockets.
    #[error("cannot set the firewall mark {mark:#x}: {source}")]
    Fwmark {
        /// The mark asked for.
        mark: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It adds a peer of the outer tunnel: events of a peer could not be told apart.
    #[error("a peer of the outer tunnel cannot be one of the tunnel inside as well")]
    PeerOfOuter,
    /// The tunnel has ended.
    #[error("the tunnel has ended")]
    Closed,
}

impl From<Closed> for ApplyError {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}

/// The tunnel has ended.
#[derive(Debug, thiserror::Error)]
#[error("the tunnel has ended")]
pub struct Closed;

/// Why the tunnel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// [`Tunnel::stop`](crate::Tunnel::stop) was called, or every handle is gone.
    Stopped,
    /// The interface was deleted.
    InterfaceDeleted,
    /// Something failed that cannot be repaired.
    Failed(String),
}
