//! Addresses at which other machines reach this one, outside of all tunnels.

use std::net::IpAddr;

use convoy_netlink::{Link, Netlink, NetlinkError, OwnAddress};

use crate::{error::HostError, host::Host, link::is_tunnel};

/// Most addresses that [`Host::own_addresses`] returns.
pub const MAX_OWN_ADDRESSES: usize = 8;

impl Host {
    /// Lists this machine's addresses of global scope on links that are up and no tunnels, IPv6 first, at most
    /// [`MAX_OWN_ADDRESSES`]. From then on, [`Event::OwnAddresses`](crate::Event::OwnAddresses) tells of changes.
    ///
    /// # Errors
    /// If the kernel does not tell its links or addresses.
    pub async fn own_addresses(&mut self) -> Result<Vec<IpAddr>, HostError> {
        let addresses = own_addresses(&self.effects.netlink).await?;
        self.told_addresses = Some(addresses.clone());
        Ok(addresses)
    }

    /// Returns the addresses if they are not the ones that the caller knows of.
    pub(crate) async fn other_addresses(&mut self) -> Result<Option<Vec<IpAddr>>, HostError> {
        let Some(former) = self.told_addresses.clone() else {
            return Ok(None);
        };
        let now = self.own_addresses().await?;
        Ok((former != now).then_some(now))
    }
}

/// Lists the addresses of [`Host::own_addresses`] for a caller that changes nothing.
///
/// # Errors
/// If the kernel does not tell its links or addresses.
pub async fn own_addresses(netlink: &Netlink) -> Result<Vec<IpAddr>, HostError> {
    let found: Result<_, NetlinkError> =
        async { Ok((netlink.links().await?, netlink.own_addresses().await?)) }.await;
    let (links, addresses) = found.map_err(HostError::kernel("read", "addresses"))?;
    Ok(reachable(&links, &addresses))
}

/// Chooses the addresses, in an order that does not depend on the kernel's.
fn reachable(links: &[Link], addresses: &[OwnAddress]) -> Vec<IpAddr> {
    let leads_out = |index: u32| {
        let mut links = links.iter().filter(|link| link.index == index);
        links.any(|it| it.is_up && it.has_carrier && !it.is_loopback && !is_tunnel(it))
    };
    let mut found: Vec<_> = addresses
        .iter()
        .filter(|it| leads_out(it.link))
        .map(|it| it.address)
        .filter(|it| !it.is_loopback() && !it.is_unspecified() && !is_link_local(it))
        .collect();
    found.sort_by_key(|it| (it.is_ipv4(), is_private(it), *it));
    found.dedup();
    found.truncate(MAX_OWN_ADDRESSES);
    found
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns whether only machines of the same site can reach this address.
fn is_private(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, kind: &str) -> Link {
        Link {
            index,
            kind: kind.to_owned(),
            is_up: true,
            has_carrier: true,
            ..Link::default()
        }
    }

    fn chosen(links: &[Link], addresses: &[(u32, &str)]) -> Vec<String> {
        let addresses = addresses.iter().map(|(link, address)| OwnAddress {
            address: address.parse().unwrap(),
            link: *link,
        });
        let chosen = reachable(links, &addresses.collect::<Vec<_>>());
        chosen.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn addresses_of_links_that_lead_out_are_told_public_ones_of_ipv6_first() {
        let links = [link(1, ""), link(2, "bridge")];
        let addresses = [
            (1, "10.1.0.1"),
            (1, "192.0.2.1"),
            (1, "fd00::1"),
            (1, "2001:db8::2"),
            (1, "2001:db8::1"),
            (1, "fe80::1"),
            (1, "169.254.0.1"),
            (2, "172.17.0.1"),
            (2, "192.0.2.1"),
        ];
        let expected = [
            "2001:db8::1",
            "2001:db8::2",
            "fd00::1",
            "192.0.2.1",
            "10.1.0.1",
            "172.17.0.1",
        ];
        assert_eq!(chosen(&links, &addresses), expected);
        let mut otherwise = addresses;
        otherwise.reverse();
        assert_eq!(chosen(&links, &otherwise), expected);
    }

    #[test]
    fn addresses_of_tunnels_loopback_and_dead_links_are_not_told() {
        let down = Link {
            is_up: false,
            ..link(3, "")
        };
        let unplugged = Link {
            has_carrier: false,
            ..link(4, "")
        };
        let loopback = Link {
            is_loopback: true,
            ..link(5, "")
        };
        let links = [
            link(1, "tun"),
            link(2, "wireguard"),
            down,
            unplugged,
            loopback,
        ];
        for index in 1..=6 {
            let none: [&str; 0] = [];
            assert_eq!(chosen(&links, &[(index, "192.0.2.1")]), none, "{index}");
        }
    }

    #[test]
    fn no_more_addresses_are_told_than_the_bound() {
        let many: Vec<_> = (0..20).map(|it| format!("2001:db8::{it}")).collect();
        let many: Vec<_> = many.iter().map(|it| (1, it.as_str())).collect();
        assert_eq!(chosen(&[link(1, "")], &many).len(), MAX_OWN_ADDRESSES);
    }
}
