//! The router that packets to the internet go to.

use std::net::Ipv4Addr;

use convoy_netlink::Netlink;

use crate::problem::Problem;

/// A router on a connected network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    pub(crate) address: Ipv4Addr,
    /// This machine's interface on that network.
    pub(crate) interface: String,
}

/// Looks up the gateway of the best default route of IPv4.
pub(crate) async fn find() -> Result<Gateway, Problem> {
    let failed = |error: convoy_netlink::NetlinkError| Problem::System(error.to_string());
    let netlink = Netlink::open().map_err(failed)?;
    let gateway = netlink.default_gateway().await.map_err(failed)?;
    let (address, device) = gateway.ok_or(Problem::NoGateway)?;
    let link = netlink.link_by_index(device).await.map_err(failed)?;
    let interface = link.ok_or(Problem::NoGateway)?.name;
    Ok(Gateway { address, interface })
}
