//! The order in which addresses are tried.

use std::{collections::VecDeque, net::IpAddr};

/// Puts each address once: those with a route first; among these, IPv6 and IPv4 in turn (RFC 8305 §4).
pub(super) fn in_order(addresses: Vec<IpAddr>, has_route: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
    let mut distinct = Vec::new();
    for address in addresses {
        let address = address.to_canonical();
        if !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    let (reachable, others) = distinct.into_iter().partition(|it| has_route(*it));
    let mut ordered = in_turn(reachable);
    ordered.extend(in_turn(others));
    ordered
}

fn in_turn(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (mut next, mut other): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(IpAddr::is_ipv6);
    let mut ordered = Vec::new();
    while let Some(address) = next.pop_front().or_else(|| other.pop_front()) {
        ordered.push(address);
        if !other.is_empty() {
            std::mem::swap(&mut next, &mut other);
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_what_has_no_route_goes_last() {
        let addresses = [
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
            "2001:db8::1",
            "2001:db8::2",
        ];
        let all = [
            "2001:db8::1",
            "192.0.2.1",
            "2001:db8::2",
            "192.0.2.2",
            "192.0.2.3",
        ];
        assert_eq!(ordered(&addresses, |_| true), all);
        assert_eq!(ordered(&addresses, |_| false), all);
        let only_v4 = [
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
            "2001:db8::1",
            "2001:db8::2",
        ];
        assert_eq!(ordered(&addresses, |it| it.is_ipv4()), only_v4);
    }

    #[test]
    fn each_address_comes_once() {
        let addresses = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1", "2001:db8::1"];
        assert_eq!(ordered(&addresses, |_| true), ["2001:db8::1", "192.0.2.1"]);
    }

    fn ordered(addresses: &[&str], has_route: impl Fn(IpAddr) -> bool) -> Vec<String> {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        let ordered = in_order(addresses, has_route).into_iter();
        ordered.map(|it| it.to_string()).collect()
    }
}
