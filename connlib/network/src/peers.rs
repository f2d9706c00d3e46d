//! Peers by their addresses.

use std::{fmt, net::IpAddr};

use convoy_types::Prefix;
use ip_network::IpNetwork;
use ip_network_table::IpNetworkTable;

/// Peers by their allowed IPs: the most specific prefix decides, as for the tunnel.
pub struct Peers(IpNetworkTable<u32>);

impl Peers {
    /// The prefixes, each with its peer's number.
    pub fn new(prefixes: impl IntoIterator<Item = (Prefix, u32)>) -> Self {
        let mut table = IpNetworkTable::new();
        for (prefix, peer) in prefixes {
            let prefix = prefix.unmapped();
            let network = IpNetwork::new_truncate(prefix.address(), prefix.length());
            if let Ok(network) = network {
                table.insert(network, peer);
            }
        }
        Self(table)
    }

    /// The number of the peer that has an address.
    pub fn of(&self, address: IpAddr) -> Option<u32> {
        self.0.longest_match(address).map(|(_, peer)| *peer)
    }

    /// The number of the peer that has an address of IPv6, if it has only a part of the address's network of 64 bits.
    pub fn of_part(&self, address: IpAddr) -> Option<u32> {
        let found = self.0.longest_match(address);
        let found = found.filter(|(prefix, _)| prefix.is_ipv6() && prefix.netmask() > 64);
        found.map(|(_, peer)| *peer)
    }

    /// Returns whether an address is a peer's own, and not only one of everything.
    pub fn has(&self, address: IpAddr) -> bool {
        let found = self.0.longest_match(address);
        found.is_some_and(|(prefix, _)| prefix.netmask() > 0)
    }
}

impl Default for Peers {
    fn default() -> Self {
        Self::new([])
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ipv4, ipv6) = self.0.len();
        write!(f, "Peers({} prefixes)", ipv4 + ipv6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_have_a_part_of_a_network() {
        let prefixes = [("fd08::2", 1), ("fd08::/64", 2), ("10.8.0.2", 3)];
        let peers = Peers::new(prefixes.map(|(prefix, peer)| (prefix.parse().unwrap(), peer)));
        let of_part =
            ["fd08::2", "fd08::3", "10.8.0.2"].map(|it| peers.of_part(it.parse().unwrap()));
        assert_eq!(of_part, [Some(1), None, None]);
    }

    #[test]
    fn the_most_specific_prefix_decides() {
        let prefixes = [("10.8.0.0/24", 1), ("10.8.0.7", 2), ("::/0", 3)];
        let peers = Peers::new(prefixes.map(|(prefix, peer)| (prefix.parse().unwrap(), peer)));
        for (address, peer) in [
            ("10.8.0.1", Some(1)),
            ("10.8.0.7", Some(2)),
            ("10.9.0.1", None),
            ("2001:db8::1", Some(3)),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(peers.of(address), peer, "{address}");
            assert_eq!(peers.of_part(address), None, "{address}");
            assert_eq!(
                peers.has(address),
                peer.is_some_and(|it| it < 3),
                "{address}"
            );
        }
    }
}
