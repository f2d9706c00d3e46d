//! The hosts behind a peer that may answer echo requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_config::{Config, Prefix};
use convoy_proto::config::PublicKey;

/// The most hosts that are tried.
const MAX_TARGETS: usize = 4;

/// Hosts that only this peer leads to, in this order: name servers, the first hosts of the interface's networks, and
/// the peer's own addresses.
pub(super) fn targets(config: &Config, peer: &PublicKey) -> Vec<IpAddr> {
    let it = &config.interface;
    let servers = it.dns_servers.iter().map(|server| server.value);
    let first_hosts = it.addresses.iter().filter_map(|own| first_host(&own.value));
    let of_all = servers.chain(first_hosts);
    let behind = of_all.filter(|address| peer_of(config, *address) == Some(peer));
    let peers = config.peers.iter();
    let peers = peers.filter(|it| it.public_key.value == *peer);
    let own = peers.flat_map(|peer| &peer.allowed_ips);
    let own = own.map(|network| network.value).filter(Prefix::is_host);
    let own = own.map(|network| network.address());

    let mut targets = Vec::new();
    for address in behind.chain(own) {
        let is_ours = it.addresses.iter().any(|own| own.address() == address);
        let mut excluded = it.excluded_ips.iter();
        let is_excluded = excluded.any(|network| network.holds(address));
        let is_known = targets.contains(&address);
        if is_host(address) && !is_ours && !is_excluded && !is_known {
            targets.push(address);
        }
        if targets.len() == MAX_TARGETS {
            break;
        }
    }
    targets
}

/// The address after that of the network; of two addresses, the one that is not ours.
fn first_host(own: &Prefix) -> Option<IpAddr> {
    let is_pair = Prefix::host(own.address()).length() - own.length() == 1;
    let first = match (own.address(), own.network().address()) {
        (IpAddr::V4(own), _) if is_pair => Ipv4Addr::from_bits(own.to_bits() ^ 1).into(),
        (IpAddr::V6(own), _) if is_pair => Ipv6Addr::from_bits(own.to_bits() ^ 1).into(),
        (_, IpAddr::V4(network)) => Ipv4Addr::from_bits(network.to_bits() | 1).into(),
        (_, IpAddr::V6(network)) => Ipv6Addr::from_bits(network.to_bits() | 1).into(),
    };
    (!own.is_host()).then_some(first)
}

/// The peer whose allowed IPs select packets to the address.
fn peer_of(config: &Config, address: IpAddr) -> Option<&PublicKey> {
    let networks = config.peers.iter().flat_map(|peer| {
        let networks = peer.allowed_ips.iter();
        networks.map(|network| (&network.value, &peer.public_key.value))
    });
    let holding = networks.filter(|(network, _)| network.holds(address));
    let longest = holding.max_by_key(|(network, _)| network.length());
    longest.map(|(_, peer)| peer)
}

/// Returns whether the address can be that of another host, beyond the next link.
fn is_host(address: IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !is_special && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{KEY, OTHER, config};

    #[test]
    fn name_servers_come_first_then_first_hosts_then_the_peers_own_addresses() {
        let config = config(
            "Address = 10.8.0.2/24, fd08::2/64\nDNS = 9.9.9.9, 10.8.0.1\n",
            &["AllowedIPs = 10.7.7.7/32, 0.0.0.0/0, ::/0, fd07::7/128\n"],
        );
        assert_eq!(
            found(&config),
            ["9.9.9.9", "10.8.0.1", "fd08::1", "10.7.7.7"]
        );
    }

    #[test]
    fn only_hosts_that_this_peer_leads_to_are_tried() {
        let peers = [
            "AllowedIPs = 10.0.0.0/8, 10.5.0.5/32\n",
            "AllowedIPs = 10.8.0.0/24, 9.9.9.9/32\n",
        ];
        let config = config(
            "Address = 10.8.0.2/24, 10.9.0.2/24, 10.6.0.2/24\nDNS = 9.9.9.9, 8.8.8.8, 10.1.1.1\n\
             #convoy: ExcludedIPs = 10.6.0.0/16\n",
            &peers,
        );
        assert_eq!(found(&config), ["10.1.1.1", "10.9.0.1", "10.5.0.5"]);
        assert_eq!(texts(&config, OTHER), ["9.9.9.9", "10.8.0.1"]);
    }

    #[test]
    fn the_other_one_of_two_addresses_is_a_host_and_ours_are_none() {
        let config = config(
            "Address = 10.1.0.0/31, 10.2.0.3/31, fd01::/127, 10.3.0.1/24, 10.4.0.4/32, fd04::4/128\n\
             DNS = 127.0.0.1, ::1, fe80::1, 10.4.0.4\n",
            &["AllowedIPs = 0.0.0.0/0, ::/0\n"],
        );
        assert_eq!(found(&config), ["10.1.0.1", "10.2.0.2", "fd01::1"]);
    }

    #[test]
    fn a_few_hosts_are_tried() {
        let networks: Vec<_> = (0..9).map(|n| format!("10.0.{n}.2/24")).collect();
        let interface = format!("Address = {}\n", networks.join(", "));
        let config = config(&interface, &["AllowedIPs = 10.0.0.0/8\n"]);
        assert_eq!(found(&config).len(), MAX_TARGETS);
    }

    fn found(config: &Config) -> Vec<String> {
        texts(config, KEY)
    }

    fn texts(config: &Config, peer: PublicKey) -> Vec<String> {
        let targets = targets(config, &peer).into_iter();
        targets.map(|address| address.to_string()).collect()
    }
}
