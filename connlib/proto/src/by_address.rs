//! An index of peers by endpoint address.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

/// The ids of peers, by the addresses of their endpoints; several peers may have the same one.
#[derive(Debug, Default)]
pub(crate) struct ByAddress(BTreeSet<(SocketAddr, usize)>);

impl ByAddress {
    /// Call whenever the address of a peer's endpoint changes.
    pub(crate) fn peer_moved(
        &mut self,
        id: usize,
        from: Option<SocketAddr>,
        to: Option<SocketAddr>,
    ) {
        if let Some(from) = from {
            self.0.remove(&(from, id));
        }
        self.0.extend(to.map(|to| (to, id)));
    }

    pub(crate) fn peers_at(&self, address: SocketAddr) -> impl Iterator<Item = usize> {
        let all = self.0.range((address, 0)..=(address, usize::MAX));
        all.map(|(_, id)| *id)
    }

    /// Peers at any port of an address.
    pub(crate) fn peers_of(&self, host: IpAddr) -> impl Iterator<Item = usize> {
        // Ports come behind addresses, and an IPv6 address has its flow label and its scope behind the port.
        let all = self.0.range((SocketAddr::new(host, 0), 0)..);
        all.take_while(move |(address, _)| address.ip() == host)
            .map(|(_, id)| *id)
    }

    /// Returns whether some peer is at an IPv4 address, or at an IPv6 address.
    pub(crate) fn has_some(&self, is_ipv4: bool) -> bool {
        // IPv4 addresses come first.
        let nearest = match is_ipv4 {
            true => self.0.first(),
            false => self.0.last(),
        };
        nearest.is_some_and(|(address, _)| address.is_ipv4() == is_ipv4)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SocketAddr, usize)> {
        self.0.iter().copied()
    }
}
