//! Ends of a flow.

use std::net::SocketAddr;

/// The two ends of a flow, as its packets name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) target: SocketAddr,
}
