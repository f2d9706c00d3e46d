//! IPv4 routes whose MTU is smaller than their interface's.
//!
//! The IPv4 socket ignores path MTUs (`IP_PMTUDISC_OMIT`, ip(7)), because an ICMP message that changes
//! one is easily forged. With that option the kernel also ignores the MTU of the route itself. So we
//! ask for it here, once per destination.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use convoy_datagram::Destination;

/// The length of an IPv4 and a UDP header, in bytes.
const HEADERS: usize = 20 + 8;
/// Datagrams up to this length, in bytes, need no lookup: every host takes them (RFC 1122 §3.3.2), and
/// handshake messages must not cost one.
const ALWAYS_WHOLE: usize = 576 - HEADERS;
/// Most destinations remembered; at the bound all are forgotten.
const MAX_DESTINATIONS: usize = 4096;

/// For each destination, the longest datagram that its route takes unfragmented, in bytes.
#[derive(Debug, Default)]
pub(super) struct NarrowRoutes {
    longest: HashMap<(SocketAddr, Option<IpAddr>), usize>,
}

impl NarrowRoutes {
    /// Whether a datagram or a segment of `len` bytes is too long for the MTU of its route, which
    /// `own_mtu` looks up.
    pub(super) fn is_too_narrow(
        &mut self,
        destination: &Destination,
        len: usize,
        own_mtu: impl FnOnce() -> Option<usize>,
    ) -> bool {
        if len <= ALWAYS_WHOLE || destination.to.is_ipv6() {
            return false;
        }
        let key = (destination.to, destination.source);
        if let Some(longest) = self.longest.get(&key) {
            return len > *longest;
        }
        if self.longest.len() >= MAX_DESTINATIONS {
            self.longest.clear();
        }
        let longest = own_mtu().map_or(usize::MAX, |mtu| mtu.saturating_sub(HEADERS));
        self.longest.insert(key, longest);
        len > longest
    }

    /// Forgets all lookups. Call when routes have changed.
    pub(super) fn forget(&mut self) {
        self.longest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_asked_once_until_routes_change() {
        let mut routes = NarrowRoutes::default();
        let to = destination(([192, 0, 2, 1], 7).into());
        assert!(!routes.is_too_narrow(&to, 1272, || Some(1300)));
        assert!(routes.is_too_narrow(&to, 1273, || unreachable!()));
        routes.forget();
        assert!(!routes.is_too_narrow(&to, 60_000, || None));
        assert!(!routes.is_too_narrow(&to, 60_000, || unreachable!()));
    }

    #[test]
    fn short_datagrams_and_ipv6_need_no_question() {
        let mut routes = NarrowRoutes::default();
        let v4 = destination(([192, 0, 2, 1], 7).into());
        let v6 = destination(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 7).into());
        assert!(!routes.is_too_narrow(&v4, ALWAYS_WHOLE, || unreachable!()));
        assert!(!routes.is_too_narrow(&v6, 60_000, || unreachable!()));
    }

    #[test]
    fn the_destinations_remembered_are_bounded() {
        let mut routes = NarrowRoutes::default();
        for n in 0..10_000u32 {
            let to = destination((std::net::Ipv4Addr::from(n), 7).into());
            routes.is_too_narrow(&to, 1400, || None);
        }
        assert!(routes.longest.len() <= MAX_DESTINATIONS);
    }

    fn destination(to: SocketAddr) -> Destination {
        Destination {
            to,
            source: None,
            ecn: 0,
        }
    }
}
