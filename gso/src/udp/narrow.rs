//! IPv4 routes whose MTU is smaller than their interface's.
//!
//! The IPv4 socket ignores path MTUs (`IP_PMTUDISC_OMIT`, ip(7)), because an ICMP message that changes
//! one is easily forged. With that option the kernel also ignores the MTU of the route itself. So we
//! ask for it here, once per destination and change of routes.

use std::{collections::HashMap, net::IpAddr};

use convoy_types::Destination;

/// The length of an IPv4 and a UDP header, in bytes.
const HEADERS: usize = 20 + 8;
/// Datagrams up to this length, in bytes, need no lookup: every host takes them (RFC 1122 §3.3.2), and
/// handshake messages must not cost one.
const ALWAYS_WHOLE: usize = 576 - HEADERS;
/// Most destinations remembered; at the bound any one of them is forgotten for a new one.
const MAX_DESTINATIONS: usize = 16_384;

/// For each destination, the longest datagram that its route takes unfragmented, in bytes.
#[derive(Debug, Default)]
pub(super) struct NarrowRoutes {
    /// By the address and the pinned source, with the number of route changes before the question.
    longest: HashMap<(IpAddr, Option<IpAddr>), (usize, u64)>,
    changes: u64,
    /// Questions that may be asked in this tick.
    questions: usize,
}

impl NarrowRoutes {
    /// Returns whether a datagram or a segment of `len` bytes is too long for the MTU of its route, which
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
        let key = (destination.to.ip(), destination.source);
        let known = self.longest.get(&key);
        if let Some((longest, changes)) = known
            && (*changes == self.changes || self.questions == 0)
        {
            return len > *longest;
        }
        let Some(questions) = self.questions.checked_sub(1) else {
            // As wide as the interface, like most.
            return false;
        };
        self.questions = questions;
        if known.is_none() && self.longest.len() >= MAX_DESTINATIONS {
            let some = self.longest.keys().next().copied();
            some.and_then(|some| self.longest.remove(&some));
        }
        let longest = own_mtu().map_or(usize::MAX, |mtu| mtu.saturating_sub(HEADERS));
        self.longest.insert(key, (longest, self.changes));
        len > longest
    }

    /// Marks all lookups as outdated. Call when routes have changed.
    pub(super) fn routes_changed(&mut self) {
        self.changes += 1;
    }

    /// Allows this many lookups until the next call.
    pub(super) fn allow(&mut self, questions: usize) {
        self.questions = questions;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_route_is_asked_once_until_routes_change() {
        let mut routes = NarrowRoutes::default();
        let to = destination(([192, 0, 2, 1], 7).into());
        routes.allow(2);
        assert!(!routes.is_too_narrow(&to, 1272, || Some(1300)));
        assert!(routes.is_too_narrow(&to, 1273, || unreachable!()));
        routes.routes_changed();
        assert!(!routes.is_too_narrow(&to, 60_000, || None));
        assert!(!routes.is_too_narrow(&to, 60_000, || unreachable!()));
    }

    #[test]
    fn without_a_question_left_the_last_answer_holds() {
        let mut routes = NarrowRoutes::default();
        let [known, new] = [1, 2].map(|host| destination(([192, 0, 2, host], 7).into()));
        routes.allow(1);
        assert!(routes.is_too_narrow(&known, 1400, || Some(1300)));
        routes.routes_changed();
        assert!(routes.is_too_narrow(&known, 1400, || unreachable!()));
        assert!(!routes.is_too_narrow(&new, 1400, || unreachable!()));
        routes.allow(1);
        assert!(!routes.is_too_narrow(&known, 1400, || None));
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
        for n in 0..2 * MAX_DESTINATIONS as u32 {
            let to = destination((std::net::Ipv4Addr::from(n), 7).into());
            routes.allow(1);
            routes.is_too_narrow(&to, 1400, || None);
        }
        assert_eq!(routes.longest.len(), MAX_DESTINATIONS);
    }

    fn destination(to: SocketAddr) -> Destination {
        Destination {
            to,
            source: None,
            ecn: 0,
        }
    }
}
