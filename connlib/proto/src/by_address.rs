//! An index of peers by endpoint address.

use std::{collections::BTreeSet, net::SocketAddr};

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

    pub(crate) fn has_both_families(&self) -> bool {
        // IPv4 addresses come first.
        let (first, last) = (self.0.first(), self.0.last());
        first.is_some_and(|(a, _)| a.is_ipv4()) && last.is_some_and(|(a, _)| a.is_ipv6())
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SocketAddr, usize)> {
        self.0.iter().copied()
    }
}
