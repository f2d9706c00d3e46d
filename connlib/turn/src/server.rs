//! A TURN server, and the addresses that it may give.

use std::net::{IpAddr, SocketAddr};

/// The transport between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP, or TLS over it.
    Stream,
}

/// A TURN server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address and port.
    pub address: SocketAddr,
    /// How to reach it.
    pub transport: Transport,
}

impl Server {
    /// Returns whether an address may be a relayed one of this server, by all that can be known here.
    pub(crate) fn may_give(&self, relayed: SocketAddr) -> bool {
        let ip = relayed.ip();
        // No datagram on the wire has a mapped one.
        let is_mapped = ip != ip.to_canonical();
        let is_link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_shared = ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::from([255; 4]);
        let is_local = ip.is_loopback() && !self.address.ip().to_canonical().is_loopback();
        let is_foreign = is_mapped || is_link_local || is_shared || is_local;
        relayed.port() != 0 && relayed != self.address && !is_foreign
    }
}
