//! Links that lead out of the host.

use convoy_netlink::{Link, Netlink, NetlinkError};

/// Kinds of devices that carry packets inside others, to a network elsewhere.
const TUNNELS: [&str; 14] = [
    "wireguard",
    "tun",
    "ovpn",
    "ppp",
    "xfrm",
    "vti",
    "vti6",
    "ipip",
    "sit",
    "gre",
    "gretap",
    "ip6tnl",
    "ip6gre",
    "ip6gretap",
];

/// Lists the names of all links that may lead out, besides `interface`: neither loopback nor ports of bridges, as a
/// host sends by the bridge.
pub(crate) async fn links_out(
    netlink: &Netlink,
    interface: &str,
) -> Result<Vec<String>, NetlinkError> {
    let links = netlink.links().await?.into_iter();
    let outer = links.filter(|link| !link.is_bridge_port && !link.is_loopback);
    let names = outer.map(|link| link.name);
    Ok(names.filter(|name| name != interface).collect())
}

/// Lists the indices of all tunnels' devices.
pub(crate) async fn tunnels(netlink: &Netlink) -> Result<Vec<u32>, NetlinkError> {
    let links = netlink.links().await?;
    let tunnels = links.iter().filter(|link| is_tunnel(link));
    Ok(tunnels.map(|link| link.index).collect())
}

/// Returns whether a link carries packets inside others.
pub(crate) fn is_tunnel(link: &Link) -> bool {
    TUNNELS.contains(&&*link.kind)
}
