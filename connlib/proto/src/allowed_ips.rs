//! Cryptokey routing (WireGuard paper §2): the most specific prefix selects the peer to send to, and
//! decides which source addresses a peer may use.

use std::{cell::Cell, net::IpAddr};

use convoy_types::holes_in_internet;
use ip_network::{IpNetwork, Ipv4Network, Ipv6Network};
use ip_network_table::IpNetworkTable;

use crate::config::Prefix;

/// Cached lookups: successive packets often belong to one flow.
const REMEMBERED: usize = 16;

/// A map from prefixes to owners with longest-prefix match.
pub struct AllowedIps<T> {
    table: IpNetworkTable<T>,
    /// Prefixes that belong to others as well; see [`Self::set_overlay`].
    overlay: Option<Box<IpNetworkTable<Overlaid<T>>>>,
    /// Recent lookups, by the address's last bits; cleared when a prefix changes.
    recent: [Cell<Option<(IpAddr, T)>>; REMEMBERED],
}

/// The owner of a prefix in the overlay.
#[derive(Clone, Copy, Debug)]
pub struct Overlaid<T> {
    /// Owner of the prefixes around it: where that is another one, this owner has nothing.
    pub below: T,
    /// The owner.
    pub owner: T,
}

impl<T> std::fmt::Debug for AllowedIps<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (v4, v6) = self.table.len();
        write!(f, "AllowedIps({v4} IPv4, {v6} IPv6)")
    }
}

impl<T> Default for AllowedIps<T> {
    fn default() -> Self {
        Self {
            table: IpNetworkTable::new(),
            overlay: None,
            recent: std::array::from_fn(|_| Cell::new(None)),
        }
    }
}

impl<T: Copy + PartialEq> AllowedIps<T> {
    /// Gives `prefix` to `owner`; returns its former owner.
    pub fn insert(&mut self, prefix: Prefix, owner: T) -> Option<T> {
        self.forget_recent();
        self.table.insert(network(prefix), owner)
    }

    /// Removes `prefix`, whoever owns it.
    pub fn remove(&mut self, prefix: Prefix) {
        self.forget_recent();
        self.table.remove(network(prefix));
    }

    /// Gives prefixes to owners in addition, instead of the former ones: each has an address only while that belongs to
    /// the one below by the prefixes of [`Self::insert`].
    pub(crate) fn set_overlay(
        &mut self,
        prefixes: impl IntoIterator<Item = (Prefix, Overlaid<T>)>,
    ) {
        let mut overlay = IpNetworkTable::new();
        for (prefix, overlaid) in prefixes {
            overlay.insert(network(prefix), overlaid);
        }
        self.overlay = (!overlay.is_empty()).then(|| Box::new(overlay));
        self.forget_recent();
    }

    /// Returns whether a prefix contains `address`, other than a default route or a part of one: the prefixes hold the
    /// internet, but without that one they would not.
    #[must_use]
    pub(crate) fn has_prefix_around(&self, address: IpAddr) -> bool {
        let Some((length, _)) = longest_match(&self.table, address) else {
            return false;
        };
        let has = |it: Prefix| self.table.exact_match(network(it)).is_some();
        let Some(holes) = holes_in_internet(address.is_ipv6(), has) else {
            return true;
        };
        if length <= Prefix::LONGEST_PART {
            return false;
        }
        let around = Prefix::network_of(address, length);
        let without = holes_in_internet(address.is_ipv6(), |it| Some(it) != around && has(it));
        without == Some(holes)
    }

    /// The owner of the most specific prefix that contains `address`.
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Option<T> {
        let last_bits = match address {
            IpAddr::V4(v4) => v4.to_bits() as usize,
            IpAddr::V6(v6) => v6.to_bits() as usize,
        };
        let recent = &self.recent[last_bits % REMEMBERED];
        if let Some((known, owner)) = recent.get()
            && known == address
        {
            return Some(owner);
        }
        let owner = self.search(address)?;
        recent.set(Some((address, owner)));
        Some(owner)
    }

    fn forget_recent(&mut self) {
        self.recent.iter_mut().for_each(|cell| cell.set(None));
    }

    /// As [`Self::lookup`], but remembers nothing.
    pub(crate) fn search(&self, address: IpAddr) -> Option<T> {
        let (_, owner) = longest_match(&self.table, address)?;
        let overlay = self.overlay.as_deref();
        let overlaid = overlay.and_then(|overlay| longest_match(overlay, address));
        let overlaid = overlaid.filter(|(_, overlaid)| overlaid.below == owner);
        Some(overlaid.map_or(owner, |(_, overlaid)| overlaid.owner))
    }
}

/// The length and the owner of the most specific prefix.
fn longest_match<T: Copy>(table: &IpNetworkTable<T>, address: IpAddr) -> Option<(u8, T)> {
    match address {
        IpAddr::V4(v4) => {
            let found = table.longest_match_ipv4(v4);
            found.map(|(network, owner)| (network.netmask(), *owner))
        }
        IpAddr::V6(v6) => {
            let found = table.longest_match_ipv6(v6);
            found.map(|(network, owner)| (network.netmask(), *owner))
        }
    }
}

fn network(prefix: Prefix) -> IpNetwork {
    let length = prefix.length();
    match prefix.address() {
        IpAddr::V4(v4) => Ipv4Network::new_truncate(v4, length)
            .map_or(IpNetwork::V4(Ipv4Network::DEFAULT_ROUTE), IpNetwork::V4),
        IpAddr::V6(v6) => Ipv6Network::new_truncate(v6, length)
            .map_or(IpNetwork::V6(Ipv6Network::DEFAULT_ROUTE), IpNetwork::V6),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_most_specific_prefix_wins_and_removing_it_uncovers_the_next() {
        let mut ips = AllowedIps::default();
        ips.insert(prefix("10.0.0.0", 8), 1);
        ips.insert(prefix("10.1.0.0", 16), 2);
        ips.insert(prefix("0.0.0.0", 0), 3);
        assert_eq!(lookup(&ips, "10.1.2.3"), Some(2));
        assert_eq!(lookup(&ips, "10.2.2.3"), Some(1));
        assert_eq!(lookup(&ips, "192.0.2.1"), Some(3));
        assert_eq!(lookup(&ips, "2001:db8::1"), None);
        ips.remove(prefix("10.1.0.0", 16));
        assert_eq!(lookup(&ips, "10.1.2.3"), Some(1));
    }

    #[test]
    fn a_change_applies_at_once_to_addresses_looked_up_before() {
        let mut ips = AllowedIps::default();
        ips.insert(prefix("10.0.0.0", 8), 1);
        assert_eq!(lookup(&ips, "10.1.2.3"), Some(1));
        ips.insert(prefix("10.1.2.3", 32), 2);
        assert_eq!(lookup(&ips, "10.1.2.3"), Some(2));
        ips.remove(prefix("10.1.2.3", 32));
        assert_eq!(lookup(&ips, "10.1.2.3"), Some(1));
    }

    #[test]
    fn a_prefix_given_to_another_owner_is_taken_from_the_first() {
        let mut ips = AllowedIps::default();
        assert_eq!(ips.insert(prefix("2001:db8::", 32), 1), None);
        assert_eq!(ips.insert(prefix("2001:db8::", 32), 2), Some(1));
        assert_eq!(lookup(&ips, "2001:db8::5"), Some(2));
    }

    #[test]
    fn a_default_route_is_around_no_address_and_neither_are_halves() {
        for (parts, is_around) in [
            (&["0.0.0.0/0"][..], false),
            (&["0.0.0.0/1", "128.0.0.0/1"], false),
            (&["0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/1"], false),
            (&["0.0.0.0/1"], true),
            (&["0.0.0.0/0", "10.0.0.0/8"], true),
            (&["0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8"], true),
            (&["192.0.2.0/24", "::/0"], false),
            (&["0.0.0.0/0", "8.0.0.0/7", "10.0.0.0/7"], true),
        ] {
            let mut ips = AllowedIps::default();
            for part in parts {
                let (address, length) = part.split_once('/').unwrap();
                ips.insert(prefix(address, length.parse().unwrap()), 1);
            }
            let found = ips.has_prefix_around([10, 1, 2, 3].into());
            assert_eq!(found, is_around, "{parts:?}");
        }
    }

    #[test]
    fn the_internet_of_ipv6_is_around_no_address_in_whatever_parts() {
        let peer = "2001:db8::7".parse().unwrap();
        for (parts, is_around) in [
            (&[("2000::", 3)][..], false),
            (&[("2000::", 4), ("3000::", 4)], false),
            (
                &[
                    ("2000::", 7),
                    ("2200::", 7),
                    ("2400::", 6),
                    ("2800::", 5),
                    ("3000::", 4),
                ],
                false,
            ),
            (&[("2000::", 4)], true),
            (&[("2000::", 3), ("2001:db8::", 32)], true),
        ] {
            let mut ips = AllowedIps::default();
            for (address, length) in parts {
                ips.insert(prefix(address, *length), 1);
            }
            assert_eq!(ips.has_prefix_around(peer), is_around, "{parts:?}");
        }
    }

    #[test]
    fn a_small_part_without_which_the_internet_has_a_hole_is_around_no_address() {
        let small = prefix("203.0.113.0", 24);
        let whole = Prefix::default_of(false);
        let mut ips = AllowedIps::default();
        for part in whole.without(&[small]) {
            ips.insert(part, 1);
        }
        ips.insert(small, 1);
        assert!(!ips.has_prefix_around([203, 0, 113, 7].into()));
        ips.insert(whole, 2);
        assert!(ips.has_prefix_around([203, 0, 113, 7].into()));
    }

    #[test]
    fn bits_beyond_the_prefix_length_do_not_count() {
        assert_eq!(prefix("10.1.2.3", 8), prefix("10.0.0.0", 8));
        assert_eq!(Prefix::network_of([10, 0, 0, 0].into(), 33), None);
    }

    proptest! {
        #[test]
        fn lookup_agrees_with_a_search_of_all_prefixes(
            prefixes in prop::collection::btree_map((0u32..8, 0u8..=32), 0u32..1000, 0..40),
            probe in 0u32..8,
            low in any::<u32>(),
        ) {
            // Only the three high bits vary, so that prefixes nest and overlap.
            let spread = |high: u32| high << 29;
            let mut ips = AllowedIps::default();
            let mut model = std::collections::BTreeMap::new();
            for ((high, len), owner) in prefixes {
                let prefix = Prefix::network_of(std::net::Ipv4Addr::from(spread(high)).into(), len).unwrap();
                ips.insert(prefix, owner);
                model.insert((len, prefix.address()), owner);
            }
            let address = std::net::Ipv4Addr::from(spread(probe) | (low >> 3));
            let expected = model
                .iter()
                .rev()
                .find(|((len, network), _)| {
                    Prefix::network_of(address.into(), *len).unwrap().address() == *network
                })
                .map(|(_, owner)| *owner);
            prop_assert_eq!(ips.lookup(address.into()), expected);
        }
    }

    fn prefix(address: &str, len: u8) -> Prefix {
        Prefix::network_of(address.parse().unwrap(), len).unwrap()
    }

    fn lookup(ips: &AllowedIps<i32>, address: &str) -> Option<i32> {
        ips.lookup(address.parse().unwrap())
    }
}
