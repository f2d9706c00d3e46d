//! Whether the tunnel through which another goes leads to an endpoint.

use std::net::SocketAddr;

use convoy_proto::config::Prefix;
use convoy_report::Peer;

/// A tunnel through which another goes.
pub(super) struct Inside {
    name: String,
    /// Whether it has addresses of IPv4 and of IPv6. If neither, they are not known.
    families: [bool; 2],
    allowed: Vec<Prefix>,
}

impl Inside {
    pub(super) fn new(name: &str, families: [bool; 2], peers: &[Peer]) -> Self {
        let allowed = peers.iter().flat_map(|peer| &peer.allowed_ips);
        Self {
            name: name.to_owned(),
            families,
            allowed: allowed.filter_map(|it| it.parse().ok()).collect(),
        }
    }

    /// Returns why it drops datagrams to `endpoint`; `None` if it takes them, or is not configured yet.
    pub(super) fn refusal(&self, endpoint: SocketAddr) -> Option<String> {
        let Self {
            name,
            families,
            allowed,
        } = self;
        let is_known = families.contains(&true);
        if is_known && !families[usize::from(endpoint.is_ipv6())] {
            let family = if endpoint.is_ipv6() { "IPv6" } else { "IPv4" };
            return Some(format!("{name} has no {family} `Address`"));
        }
        let is_held = allowed.iter().any(|it| it.holds(endpoint.ip()));
        let is_refused = !allowed.is_empty() && !is_held;
        is_refused.then(|| format!("`AllowedIPs` of {name} do not hold it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_the_outer_tunnel_does_not_lead_to_is_told_with_the_reason() {
        let peer = Peer {
            allowed_ips: ["192.0.2.0/24", "2001:db8::/32"].map(str::to_owned).into(),
            ..Peer::default()
        };
        let both = [true, true];
        let peers = [peer];
        for (families, peers, endpoint, expected) in [
            (both, &peers[..], "192.0.2.7:1", None),
            (both, &peers, "[2001:db8::7]:1", None),
            (
                both,
                &peers,
                "198.51.100.7:1",
                Some("`AllowedIPs` of hop do not hold it"),
            ),
            (
                [true, false],
                &peers,
                "[2001:db8::7]:1",
                Some("hop has no IPv6 `Address`"),
            ),
            ([false, false], &peers, "192.0.2.7:1", None),
            (both, &[], "192.0.2.7:1", None),
        ] {
            let inside = Inside::new("hop", families, peers);
            let refusal = inside.refusal(endpoint.parse().unwrap());
            assert_eq!(refusal.as_deref(), expected, "{endpoint}");
        }
    }
}
