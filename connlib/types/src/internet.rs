//! Whether networks, such as allowed IPs, hold the internet of an address family between them.

use std::net::{IpAddr, Ipv4Addr};

use crate::Prefix;

/// IPv4 networks that are not the internet (RFC 6890), multicast and all above it in one.
const SPECIAL_IPV4: [Prefix; 8] = [
    of_ipv4([0, 0], 8),
    of_ipv4([10, 0], 8),
    of_ipv4([100, 64], 10),
    of_ipv4([127, 0], 8),
    of_ipv4([169, 254], 16),
    of_ipv4([172, 16], 12),
    of_ipv4([192, 168], 16),
    of_ipv4([224, 0], 3),
];
/// The IPv6 internet (RFC 4291, section 2.4).
const GLOBAL_IPV6: Prefix = Prefix::of_ipv6([0x2000, 0], 3);

/// The smallest networks that are missed, in bits, of IPv4 and of IPv6.
const SMALLEST_HOLE: [u8; 2] = [24, 48];
/// Most such holes: the endpoint is often left out, and some servers are.
const MAX_HOLES: usize = 64;
/// Most networks that are looked for.
const MAX_LOOKS: usize = 4_096;

/// Counts the small networks that are missing from the internet of a family in the networks that `has` knows; `None` if
/// they hold much less than the internet. So they do as one default route, as halves of one, as 2000::/3, and as a list
/// without private networks.
pub fn holes_in_internet(ipv6: bool, has: impl Fn(Prefix) -> bool) -> Option<usize> {
    let mut search = Search {
        has,
        holes: 0,
        looks: 0,
    };
    let is_held = search.is_held(Prefix::default_of(ipv6));
    is_held.then_some(search.holes)
}

struct Search<F> {
    has: F,
    holes: usize,
    looks: usize,
}

impl<F: Fn(Prefix) -> bool> Search<F> {
    fn is_held(&mut self, network: Prefix) -> bool {
        self.looks += 1;
        if self.looks > MAX_LOOKS {
            return false;
        }
        if !has_internet(&network) || (self.has)(network) {
            return true;
        }
        if network.length() < SMALLEST_HOLE[usize::from(network.is_ipv6())] {
            return network.halves().into_iter().all(|half| self.is_held(half));
        }
        self.holes += 1;
        self.holes <= MAX_HOLES
    }
}

/// Returns whether a network has addresses of the internet.
pub fn has_internet(network: &Prefix) -> bool {
    match network.is_ipv6() {
        true => network.overlaps(&GLOBAL_IPV6),
        false => !SPECIAL_IPV4.iter().any(|it| it.contains(network)),
    }
}

const fn of_ipv4([first, second]: [u8; 2], length: u8) -> Prefix {
    Prefix::of(IpAddr::V4(Ipv4Addr::new(first, second, 0, 0)), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All IPv4 addresses but the private ones and 203.0.113.1, as calculators write them.
    const PUBLIC: &str = "0.0.0.0/5, 8.0.0.0/7, 11.0.0.0/8, 12.0.0.0/6, 16.0.0.0/4, 32.0.0.0/3, 64.0.0.0/2, \
        128.0.0.0/3, 160.0.0.0/5, 168.0.0.0/6, 172.0.0.0/12, 172.32.0.0/11, 172.64.0.0/10, 172.128.0.0/9, \
        173.0.0.0/8, 174.0.0.0/7, 176.0.0.0/4, 192.0.0.0/9, 192.128.0.0/11, 192.160.0.0/13, 192.169.0.0/16, \
        192.170.0.0/15, 192.172.0.0/14, 192.176.0.0/12, 192.192.0.0/10, 193.0.0.0/8, 194.0.0.0/7, 196.0.0.0/6, \
        200.0.0.0/7, 202.0.0.0/8, 203.0.0.0/18, 203.0.64.0/19, 203.0.96.0/20, 203.0.112.0/24, 203.0.114.0/23, \
        203.0.116.0/22, 203.0.120.0/21, 203.0.128.0/17, 203.1.0.0/16, 203.2.0.0/15, 203.4.0.0/14, 203.8.0.0/13, \
        203.16.0.0/12, 203.32.0.0/11, 203.64.0.0/10, 203.128.0.0/9, 204.0.0.0/6, 208.0.0.0/4";

    #[test]
    fn all_ways_to_write_the_internet_are_seen() {
        for (ipv6, networks, holes) in [
            (false, "0.0.0.0/0", Some(0)),
            (false, "0.0.0.0/1, 128.0.0.0/1", Some(0)),
            (false, PUBLIC, Some(1)),
            (false, "0.0.0.0/1", None),
            (false, "0.0.0.0/1, 128.0.0.0/2", None),
            (false, "10.0.0.0/8, 203.0.113.0/24", None),
            (false, "", None),
            (false, "::/0", None),
            (true, "::/0", Some(0)),
            (true, "2000::/3", Some(0)),
            (true, "2000::/4, 3000::/4, fd00::/8", Some(0)),
            (true, "::/1, 8000::/1", Some(0)),
            (true, "2000::/4", None),
            (true, "fc00::/7", None),
        ] {
            let networks = networks.split(", ").filter(|it| !it.is_empty());
            let networks: Vec<Prefix> = networks.map(|it| it.parse().unwrap()).collect();
            let found = holes_in_internet(ipv6, |it| networks.contains(&it));
            assert_eq!(found, holes, "{networks:?}");
        }
    }

    #[test]
    fn a_search_is_bounded() {
        let looks = std::cell::Cell::new(0);
        // The first half in the smallest parts.
        let found = holes_in_internet(false, |it| {
            looks.set(looks.get() + 1);
            it.length() == 24
        });
        assert_eq!(found, None);
        assert!(looks.get() <= MAX_LOOKS);
    }
}
