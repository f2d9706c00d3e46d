//! UDP datagrams, shared by the state machine and the sockets.

use std::net::{IpAddr, SocketAddr};

/// The largest UDP payload over IPv4, in bytes (RFC 768, RFC 791). It bounds a datagram and a GSO batch.
pub const MAX_UDP_PAYLOAD: usize = 65_507;

/// Where to send a datagram, and the fields of its outer header that the sender chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The peer's endpoint.
    pub to: SocketAddr,
    /// The local address to send from; `None` lets the kernel choose.
    pub source: Option<IpAddr>,
    /// The two ECN bits of the outer header (RFC 3168).
    pub ecn: u8,
}

/// One datagram as received.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The UDP payload.
    pub bytes: &'a [u8],
    /// The sender's address.
    pub from: SocketAddr,
    /// The local side of its arrival; `None` if the kernel does not say.
    pub arrival: Option<Arrival>,
    /// The two ECN bits of the outer header (RFC 3168).
    pub ecn: u8,
}

/// The local address that a datagram was sent to, and the interface on which it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The local address.
    pub address: IpAddr,
    /// The index of the interface.
    pub interface: u32,
}
