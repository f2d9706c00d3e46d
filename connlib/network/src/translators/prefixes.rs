//! The prefixes of translators in the addresses that a resolver has made up (RFC 7050, section 3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_types::{Prefix, Translated};

/// The addresses of `ipv4only.arpa` (RFC 7050, section 8.2).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Finds the prefixes, each once. An address in which several are possible names those that another one confirms with
/// the other well-known address, or else all of them.
pub(super) fn of(addresses: &[Ipv6Addr]) -> impl Iterator<Item = Prefix> {
    let seen = |prefix: &Prefix, well_known| {
        let mut all = addresses.iter().flat_map(|it| candidates(*it));
        all.any(|other| other == (*prefix, well_known))
    };
    let mut found = Vec::new();
    for address in addresses {
        let possible: Vec<_> = candidates(*address).map(|(prefix, _)| prefix).collect();
        let is_sure = |it: &&Prefix| WELL_KNOWN.iter().all(|well_known| seen(it, *well_known));
        let sure: Vec<_> = possible.iter().filter(is_sure).copied().collect();
        let named = if sure.is_empty() { possible } else { sure };
        for prefix in named {
            if !found.contains(&prefix) {
                found.push(prefix);
            }
        }
    }
    found.into_iter()
}

/// Finds the prefixes before a well-known address, wherever it may stand.
fn candidates(address: Ipv6Addr) -> impl Iterator<Item = (Prefix, Ipv4Addr)> {
    let read = Translated::all_in(address).filter(|it| WELL_KNOWN.contains(&it.address));
    read.filter_map(move |it| {
        let prefix = Prefix::network_of(address.into(), it.prefix)?;
        may_be_a_translators(&prefix).then_some((prefix, it.address))
    })
}

/// Returns whether hosts have addresses in a prefix: global or unique local ones (RFC 4291, RFC 4193). The well-known prefix and
/// that of local translators are refused without being asked for.
fn may_be_a_translators(prefix: &Prefix) -> bool {
    match prefix.address() {
        IpAddr::V6(it) => matches!(it.octets()[0], 0x20..=0x3f | 0xfc | 0xfd),
        IpAddr::V4(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 192.0.0.170 behind a prefix of each length (RFC 6052, section 2.2), of which the first has no host bits.
    const OF_EACH_LENGTH: [(&str, &str); 6] = [
        ("2001:db8:c000:aa::", "2001:db8::/32"),
        ("2001:db8:1c0:0:aa::", "2001:db8:100::/40"),
        ("2001:db8:122:c000:0:aa00::", "2001:db8:122::/48"),
        ("2001:db8:122:3c0:0:aa::", "2001:db8:122:300::/56"),
        ("2001:db8:122:344:c0:0:aa00::", "2001:db8:122:344::/64"),
        ("2001:db8:122:344::192.0.0.170", "2001:db8:122:344::/96"),
    ];

    #[test]
    fn a_prefix_of_each_length_is_found() {
        for (address, prefix) in OF_EACH_LENGTH {
            assert_eq!(found(&[address]), [prefix], "{address}");
        }
        let all = OF_EACH_LENGTH.map(|(address, _)| address);
        assert_eq!(found(&all), OF_EACH_LENGTH.map(|(_, prefix)| prefix));
    }

    #[test]
    fn either_well_known_address_names_its_prefix_which_counts_once() {
        assert_eq!(
            found(&["fd64::192.0.0.171", "fd64::192.0.0.170"]),
            ["fd64::/96"]
        );
        for other in ["192.0.0.169", "192.0.0.172", "192.0.1.170", "170.0.0.192"] {
            assert!(found(&[&format!("fd64::{other}")]).is_empty(), "{other}");
        }
    }

    /// The well-known address stands behind 32 bits and behind 96.
    #[test]
    fn of_two_possible_prefixes_the_confirmed_one_is_taken() {
        let either = "2001:db8:c000:aa::192.0.0.170";
        let [short, long] = ["2001:db8::/32", "2001:db8:c000:aa::/96"];
        assert_eq!(found(&[either]), [short, long]);
        assert_eq!(found(&[either, "2001:db8:c000:aa::192.0.0.171"]), [long]);
        assert_eq!(found(&[either, "2001:db8:c000:ab::1"]), [short]);
        let mixed = [either, "2001:db8:c000:ab::192.0.0.171"];
        assert_eq!(found(&mixed), [short]);
    }

    /// Answers must name networks of hosts, outside the ranges that have rules of their own.
    #[test]
    fn a_hostile_answer_names_no_prefix_beyond_those_of_hosts() {
        for address in [
            "::c000:aa:0:0:0:0",
            "::192.0.0.170",
            "::ffff:192.0.0.170",
            "0:0:c000:aa::",
            "64:ff9b::192.0.0.170",
            "64:ff9b:1::192.0.0.170",
            "fe80::192.0.0.170",
            "fe80:0:c000:aa::",
            "ff02::192.0.0.170",
            "2001:db8::1",
        ] {
            assert!(found(&[address]).is_empty(), "{address}");
        }
    }

    fn found(addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<_> = addresses.iter().map(|it| it.parse().unwrap()).collect();
        of(&addresses).map(|it| it.to_string()).collect()
    }
}
