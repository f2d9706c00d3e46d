//! The local network: which of the connected networks may stay outside the tunnel.
//!
//! A host that answers DHCP requests or sends router advertisements chooses the networks that are connected.
//! Only private ones count, none that is wider than its range, and nothing of the tunnel's own networks: else one
//! packet would lead the tunnel's traffic past it (CVE-2023-36672).

use convoy_types::Prefix;

/// Ranges of local networks, and the shortest prefix of one.
const PRIVATE: [(&str, u8); 7] = [
    ("10.0.0.0/8", 8),
    ("172.16.0.0/12", 12),
    ("192.168.0.0/16", 16),
    ("169.254.0.0/16", 16),
    // Of providers' NAT (RFC 6598).
    ("100.64.0.0/10", 10),
    ("fc00::/7", 48),
    ("fe80::/10", 10),
];

/// Most networks of one kind that count.
const MAX_NETWORKS: usize = 64;
/// Most networks that a message names.
const MAX_NAMED: usize = 8;

/// Connected networks, by whether they are local.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Local {
    /// Parts of connected networks that are private, and not the tunnel's.
    pub(crate) networks: Vec<Prefix>,
    /// Connected networks that are not private, or too wide, or too many.
    foreign: Vec<Prefix>,
    /// Connected networks that share addresses with the tunnel's.
    claimed: Vec<Prefix>,
}

impl Local {
    /// Sorts the connected networks. `own` are the tunnel's.
    pub(crate) fn of(connected: &[Prefix], own: &[Prefix]) -> Self {
        let private = PRIVATE.iter().filter_map(|(range, shortest)| {
            let range: Prefix = range.parse().ok()?;
            Some((range, *shortest))
        });
        let private: Vec<_> = private.collect();
        let mut local = Self::default();
        for network in connected.iter().map(Prefix::network) {
            let is_private = private
                .iter()
                .any(|(range, shortest)| range.contains(&network) && network.length() >= *shortest);
            let holes = own.iter().filter(|own| own.overlaps(&network));
            let holes: Vec<_> = holes.copied().collect();
            let counts = is_private && local.networks.len() < MAX_NETWORKS;
            if !holes.is_empty() {
                local.claimed.push(network);
            } else if !counts {
                local.foreign.push(network);
            }
            if counts {
                local.networks.extend(network.without(&holes));
            }
        }
        local
    }

    /// Tells which connected networks lose packets to the tunnel. `is_wanted`: the configuration asks for the local
    /// network.
    pub(crate) fn warnings(&self, is_wanted: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if is_wanted && !self.foreign.is_empty() {
            warnings.push(format!(
                "not treated as the local network, as only private networks are: {}",
                named(&self.foreign)
            ));
        }
        if !self.claimed.is_empty() {
            warnings.push(format!(
                "the network outside announces addresses of the tunnel's networks, which go into the tunnel: {}",
                named(&self.claimed)
            ));
        }
        warnings
    }
}

fn named(networks: &[Prefix]) -> String {
    let names = networks.iter().take(MAX_NAMED).map(ToString::to_string);
    let mut names: Vec<_> = names.collect();
    let more = networks.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_private_networks_that_are_no_wider_than_their_range_are_local() {
        let local = [
            "10.0.0.0/8",
            "172.20.0.0/24",
            "192.168.1.0/24",
            "169.254.0.0/16",
            "100.64.7.0/24",
            "fd09:1:2::/48",
            "fd09::/64",
            "fe80::/64",
        ];
        let foreign = [
            "8.8.8.0/24",
            "10.0.0.0/7",
            "0.0.0.0/1",
            "172.0.0.0/8",
            "192.0.0.0/8",
            "2000::/3",
            "2001:db8::/64",
            "fc00::/7",
            "fd00::/8",
            "fd09::/47",
            "fe00::/9",
        ];
        let sorted = Local::of(&prefixes(&[&local[..], &foreign].concat()), &[]);
        assert_eq!(sorted.networks, prefixes(&local));
        assert_eq!(sorted.foreign, prefixes(&foreign));
        assert_eq!(sorted.claimed, []);
    }

    #[test]
    fn the_tunnels_own_networks_are_cut_out() {
        let own = prefixes(&["10.8.0.0/24", "fd09::/64"]);
        let connected = prefixes(&[
            "10.8.0.0/23",
            "10.8.0.128/25",
            "fd09::/80",
            "192.168.1.0/24",
        ]);
        let sorted = Local::of(&connected, &own);
        assert_eq!(
            sorted.networks,
            prefixes(&["10.8.1.0/24", "192.168.1.0/24"])
        );
        assert_eq!(sorted.claimed, connected[..3]);
        let [told] = &sorted.warnings(false)[..] else {
            panic!("{sorted:?}");
        };
        assert!(
            told.contains("10.8.0.0/23, 10.8.0.128/25, fd09::/80"),
            "{told}"
        );
    }

    #[test]
    fn a_flood_of_networks_is_bounded_and_told_in_one_line() {
        let flood: Vec<Prefix> = (0..1_000u32)
            .map(|n| format!("10.{}.{}.0/24", n / 250, n % 250).parse().unwrap())
            .collect();
        let sorted = Local::of(&flood, &[]);
        assert_eq!(sorted.networks.len(), MAX_NETWORKS);
        let [told] = &sorted.warnings(true)[..] else {
            panic!("{sorted:?}");
        };
        assert!(told.ends_with("and 928 more"), "{told}");
    }
}
