//! The peers' endpoints: their addresses, the routes to them and the MTU of these.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use convoy_config::{Config, Endpoint, Host, Peer};
use convoy_names::Names;
use convoy_proto::config::PublicKey;
use futures_util::future::join_all;
use nix::net::if_::if_nametoindex;

use super::{
    finding::Finding,
    netlink::{Link, Netlink, way},
    subject::name_of,
};

/// The most peers whose endpoints are looked at.
pub(super) const MAX_PEERS: usize = 64;

/// The bytes that WireGuard and UDP add to a packet, and those of IP in front of them.
const OVERHEAD: u32 = 40;
const IP: [u32; 2] = [20, 40];

/// One endpoint of a peer.
pub(super) struct Found {
    pub(super) peer: String,
    pub(super) key: PublicKey,
    /// As it is configured.
    pub(super) endpoint: String,
    /// In order of preference, or why there is none.
    pub(super) addresses: Result<Vec<SocketAddr>, String>,
}

/// Looks all names up, at once.
pub(super) async fn look_up(config: &Config, mark: Option<u32>) -> Vec<Found> {
    let names = names_outside(Some(config), mark);
    let peers = config.peers.iter().take(MAX_PEERS);
    let pairs = peers.flat_map(|peer| peer.endpoints.iter().map(move |it| (peer, &it.value)));
    join_all(pairs.map(|(peer, endpoint)| find(&names, peer, endpoint))).await
}

/// Returns the resolver that a tunnel of this configuration uses, or the one of a host without.
pub(super) fn names_outside(config: Option<&Config>, mark: Option<u32>) -> Names {
    let it = config.map(|config| &config.interface);
    let servers = it.into_iter().flat_map(|it| &it.dns_servers);
    let own = it.into_iter().flat_map(|it| &it.addresses);
    let own = own.map(|own| own.address().to_canonical());
    Names::new(mark, servers.map(|it| it.value).collect(), own.collect())
}

async fn find(names: &Names, peer: &Peer, endpoint: &Endpoint) -> Found {
    Found {
        peer: name_of(peer),
        key: peer.public_key.value,
        endpoint: endpoint.to_string(),
        addresses: addresses_of(names, endpoint).await,
    }
}

/// Returns the addresses of an endpoint in order of preference, or why there are none.
pub(super) async fn addresses_of(
    names: &Names,
    endpoint: &Endpoint,
) -> Result<Vec<SocketAddr>, String> {
    let port = endpoint.port;
    match &endpoint.host {
        Host::Ip(address) => Ok(vec![SocketAddr::new(*address, port)]),
        Host::Zoned(address, zone) => {
            let index = zone.parse().or_else(|_| if_nametoindex(zone.as_str()));
            let found = index.map(|index| vec![SocketAddrV6::new(*address, port, 0, index).into()]);
            found.map_err(|_| format!("there is no interface {zone}"))
        }
        Host::Name(name) => {
            let found = names.look_up(name).await;
            found.map(|found| {
                found
                    .into_iter()
                    .map(|ip| SocketAddr::new(ip, port))
                    .collect()
            })
        }
    }
}

/// Judges look-ups; addresses that needed none are not worth a line.
pub(super) fn judge_look_up(found: &Found) -> Option<Finding> {
    const ID: &str = "endpoint-name";
    let endpoint = &found.endpoint;
    Some(match &found.addresses {
        Err(reason) => {
            let fix = "Check its spelling, and the name servers of the network outside the tunnel.";
            let what = format!("{endpoint} has no address: {reason}.");
            Finding::error(ID, what, fix).about(&found.peer)
        }
        Ok(addresses) => {
            let texts: Vec<_> = addresses.iter().map(|it| it.ip().to_string()).collect();
            let is_address = addresses.iter().any(|it| it.to_string() == *endpoint);
            let what = format!("{endpoint} is {}.", texts.join(", "));
            return (!is_address).then(|| Finding::ok(ID, what).about(&found.peer));
        }
    })
}

/// A route to an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Path<'a> {
    pub(super) to: IpAddr,
    /// The device, and the MTU of the route or else of the device; `None` without a route.
    pub(super) by: Option<(&'a Link, u32)>,
}

/// The way that the tunnel's datagrams take.
pub(super) async fn path<'a>(
    netlink: &Netlink,
    links: &'a [Link],
    to: IpAddr,
    mark: u32,
) -> Path<'a> {
    let by = way(netlink, to, mark).await.and_then(|route| {
        let link = links.iter().find(|link| Some(link.index) == route.device)?;
        Some((link, route.mtu.unwrap_or(link.mtu)))
    });
    Path { to, by }
}

/// Judges whether a route leads to an endpoint, outside of the tunnel.
pub(super) fn judge_route(path: &Path<'_>, tunnel: &str) -> Finding {
    const ID: &str = "endpoint-route";
    let to = path.to;
    let Some((link, _)) = path.by else {
        let what = format!("No route leads to {to}.");
        return Finding::error(
            ID,
            what,
            format!("Connect to a network, and see `ip route get {to}`."),
        );
    };
    if link.name == tunnel {
        let what = format!("Datagrams to {to} would go into the tunnel itself.");
        let fix = format!(
            "Add a route to {to} outside the tunnel, or use `Table = auto`, which needs none."
        );
        return Finding::error(ID, what, fix);
    }
    let within = match link.kind.as_str() {
        "wireguard" | "tun" | "ovpn" => ", which is another VPN",
        _ => "",
    };
    Finding::ok(
        ID,
        format!("Datagrams to {to} leave by {}{within}.", link.name),
    )
}

/// Judges whether packets as large as the tunnel's MTU fit the route; `None` if there is none, or no MTU yet.
pub(super) fn judge_mtu(path: &Path<'_>, mtu: Option<u32>) -> Option<Finding> {
    const ID: &str = "endpoint-mtu";
    let ((_, available), to) = (path.by?, path.to);
    let fitting = available.saturating_sub(OVERHEAD + IP[usize::from(to.is_ipv6())]);
    let Some(mtu) = mtu else {
        return Some(Finding::ok(
            ID,
            format!("`convoy up` fits the MTU to the route to {to}, at most {fitting}."),
        ));
    };
    Some(match mtu <= fitting {
        true => Finding::ok(ID, format!("The MTU of {mtu} fits the route to {to}.")),
        false => Finding::warning(
            ID,
            format!(
                "The MTU of {mtu} is too large for the route to {to}, whose {available} bytes carry {fitting}: \
                     large packets are fragmented or lost."
            ),
            format!(
                "Remove `MTU` from the configuration, so that it is fitted to the route, or set `MTU = {}`.",
                available.saturating_sub(OVERHEAD + IP[1])
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn link(name: &str, kind: &str) -> Link {
        Link {
            index: 2,
            name: name.to_owned(),
            kind: kind.to_owned(),
            is_up: true,
            mtu: 1_500,
            ..Link::default()
        }
    }

    const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

    #[test]
    fn a_route_leads_to_the_endpoint_outside_of_the_tunnel() {
        let severity = |link: Option<&Link>| {
            let path = Path {
                to: V4,
                by: link.map(|link| (link, 1_500)),
            };
            judge_route(&path, "wg0").severity
        };
        assert_eq!(severity(None), Severity::Error);
        assert_eq!(severity(Some(&link("wg0", "tun"))), Severity::Error);
        assert_eq!(severity(Some(&link("eth0", ""))), Severity::Ok);
        assert_eq!(severity(Some(&link("tun0", "tun"))), Severity::Ok);
    }

    #[test]
    fn an_mtu_fits_if_the_route_has_room_for_the_headers_in_front_of_a_packet() {
        let eth0 = link("eth0", "");
        let judged = |to, available, mtu| {
            let path = Path {
                to,
                by: Some((&eth0, available)),
            };
            judge_mtu(&path, mtu).unwrap().severity
        };
        for (to, available, mtu, expected) in [
            (V4, 1_500, 1_440, Severity::Ok),
            (V4, 1_500, 1_441, Severity::Warning),
            (V6, 1_500, 1_420, Severity::Ok),
            (V6, 1_500, 1_421, Severity::Warning),
            (V4, 1_400, 1_420, Severity::Warning),
        ] {
            assert_eq!(
                judged(to, available, Some(mtu)),
                expected,
                "{to} {available} {mtu}"
            );
        }
        assert_eq!(judged(V4, 576, None), Severity::Ok);
        assert!(judge_mtu(&Path { to: V4, by: None }, Some(1_420)).is_none());
    }

    #[test]
    fn only_names_are_worth_a_line_unless_they_have_no_address() {
        let found = |endpoint: &str, addresses| Found {
            peer: "Office".to_owned(),
            key: PublicKey([7; 32]),
            endpoint: endpoint.to_owned(),
            addresses,
        };
        let address = SocketAddr::new(V4, 51_820);
        assert!(judge_look_up(&found("203.0.113.1:51820", Ok(vec![address]))).is_none());
        let named = judge_look_up(&found("vpn.example.org:51820", Ok(vec![address]))).unwrap();
        assert_eq!(named.severity, Severity::Ok);
        let missing = judge_look_up(&found("vpn.example.org:51820", Err("not found".to_owned())));
        let missing = missing.unwrap();
        assert_eq!(missing.severity, Severity::Error);
        assert_eq!(missing.peer.as_deref(), Some("Office"));
    }
}
