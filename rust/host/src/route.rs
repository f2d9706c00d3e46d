//! Routes of ours and of the host.
//!
//! Our routes have `protocol kernel`. systemd-networkd removes foreign routes of the links that it configures,
//! and foreign routes without a device, such as our `unreachable`, unless their protocol is `kernel`
//! (networkd.conf(5), `ManageForeignRoutes`); `static` is spared only with `KeepConfiguration=static`.

use std::{collections::HashSet, fmt, net::IpAddr};

use convoy_netlink::{
    self as netlink, MAIN_TABLE, Netlink, NetlinkError, PathMtu, RouteProtocol, RouteScope,
    RouteType,
};
use convoy_types::Prefix;
use serde::{Deserialize, Serialize};

/// The metric of a default route that catches packets only while no other default exists.
const LAST: u32 = u32::MAX - 1;

/// A route of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) table: u32,
    pub(crate) to: Prefix,
    pub(crate) via: Via,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Via {
    /// Out by the device with this index.
    Device(u32),
    /// Nowhere, if no other route takes the packet.
    Unreachable,
    /// Back to the next rule.
    Throw,
}

/// Networks of the main table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    /// Networks on the next link.
    pub(crate) connected: Vec<Prefix>,
    /// All of them, without default routes.
    pub(crate) routed: Vec<Prefix>,
    /// Whether there is a default route.
    pub(crate) has_default: bool,
}

/// Datagrams that take one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    pub(crate) to: IpAddr,
    pub(crate) mark: u32,
}

/// The way in which datagrams leave, to compare with a later look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    device: Option<u32>,
    has_carrier: bool,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
}

impl Route {
    /// Returns whether packets could leave outside the tunnel without it.
    pub(crate) fn guards(&self) -> bool {
        self.via == Via::Unreachable
    }

    fn metric(&self) -> u32 {
        match (self.via, self.to.is_ipv6()) {
            (Via::Unreachable, _) => LAST,
            // The metrics that ip(8) gives.
            (_, true) => 1024,
            (_, false) => 0,
        }
    }

    /// Describes it for the kernel.
    pub(crate) fn for_kernel(&self) -> netlink::Route {
        let (kind, device) = match self.via {
            Via::Device(index) => (RouteType::Unicast, Some(index)),
            Via::Unreachable => (RouteType::Unreachable, None),
            Via::Throw => (RouteType::Throw, None),
        };
        let route = netlink::Route::by_device(self.table, self.to, 0);
        netlink::Route {
            kind,
            device,
            metric: self.metric(),
            protocol: RouteProtocol::Kernel,
            scope: device.map_or(RouteScope::Universe, |_| route.scope),
            ..route
        }
    }

    /// Recognizes the kernel's route, if it can be one of ours.
    fn of_kernel(found: &netlink::Route) -> Option<Self> {
        let via = match found.kind {
            RouteType::Unicast => Via::Device(found.device?),
            RouteType::Unreachable => Via::Unreachable,
            RouteType::Throw => Via::Throw,
            _ => return None,
        };
        let route = Self {
            table: found.table,
            to: found.to,
            via,
        };
        let is_ours = found.protocol == RouteProtocol::Kernel && found.metric == route.metric();
        is_ours.then_some(route)
    }
}

/// Lists the routes in a table that can be ours.
pub(crate) async fn routes_in(
    netlink: &Netlink,
    table: u32,
    ipv6: bool,
) -> Result<HashSet<Route>, NetlinkError> {
    let found = netlink.routes(ipv6, Some(table)).await?;
    Ok(found.iter().filter_map(Route::of_kernel).collect())
}

/// Returns whether a table has no routes of either family.
pub(crate) async fn is_empty_table(netlink: &Netlink, table: u32) -> Result<bool, NetlinkError> {
    for ipv6 in [false, true] {
        if !netlink.routes(ipv6, Some(table)).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lists the networks of the main table that no tunnel leads to.
pub(crate) async fn outside(
    netlink: &Netlink,
    tunnels: &[u32],
    ipv6: bool,
) -> Result<Outside, NetlinkError> {
    let mut outside = Outside::default();
    for route in netlink.routes(ipv6, Some(MAIN_TABLE)).await? {
        let leads_out = route.kind == RouteType::Unicast
            && route.devices().next().is_some()
            && !route.devices().any(|device| tunnels.contains(&device));
        if !leads_out {
            continue;
        }
        if route.to.is_default() {
            outside.has_default = true;
            continue;
        }
        outside.connected.extend(connected(&route));
        outside.routed.push(route.to.network());
    }
    for networks in [&mut outside.connected, &mut outside.routed] {
        networks.sort();
        networks.dedup();
    }
    Ok(outside)
}

/// Lists the devices of default routes in the main table.
pub(crate) async fn default_devices(
    netlink: &Netlink,
    ipv6: bool,
) -> Result<Vec<u32>, NetlinkError> {
    let found = netlink.routes(ipv6, Some(MAIN_TABLE)).await?;
    let defaults = found.iter().filter(|route| route.to.is_default());
    Ok(defaults.flat_map(netlink::Route::devices).collect())
}

/// Looks up the device by which a datagram with `mark` leaves, and its route's own MTU; `None` if there is no route.
pub(crate) async fn path(netlink: &Netlink, to: IpAddr, mark: u32) -> Option<(u32, Option<u32>)> {
    // Not an MTU learnt from ICMP messages, which anybody can forge.
    let found = netlink.route_to(to, mark, PathMtu::OfRoute).await;
    let route = found.ok()??;
    Some((route.devices().next()?, route.mtu))
}

/// Looks up the device, gateway and source address of datagrams with `mark`; `None` if there is no route.
pub(crate) async fn way(netlink: &Netlink, to: IpAddr, mark: u32) -> Option<Way> {
    let found = netlink.route_to(to, mark, PathMtu::Learnt).await;
    let route = found.ok()??;
    let link = match route.device {
        Some(index) => netlink.link_by_index(index).await.ok().flatten(),
        None => None,
    };
    Some(Way {
        device: route.device,
        has_carrier: link.is_some_and(|link| link.has_carrier),
        gateway: route.gateway,
        source: route.source,
    })
}

/// Finds the other route to the same network as one of ours, as ip(8) shows it, and whether it is that of a connected
/// network.
pub(crate) async fn rival(
    netlink: &Netlink,
    route: &Route,
) -> Result<Option<(String, bool)>, NetlinkError> {
    let found = netlink
        .routes(route.to.is_ipv6(), Some(route.table))
        .await?;
    let rival = found
        .iter()
        .find(|found| found.to == route.to.network() && Route::of_kernel(found) != Some(*route));
    let Some(rival) = rival else {
        return Ok(None);
    };
    let mut shown = route.to.network().to_string();
    if let Some(gateway) = rival.gateway {
        shown += &format!(" via {gateway}");
    }
    for device in rival.devices() {
        if let Some(link) = netlink.link_by_index(device).await? {
            shown += &format!(" dev {}", link.name);
        }
    }
    let protocol = match rival.protocol {
        RouteProtocol::Kernel => " proto kernel",
        RouteProtocol::Dhcp => " proto dhcp",
        RouteProtocol::Static => " proto static",
        RouteProtocol::Ra => " proto ra",
        _ => "",
    };
    Ok(Some((shown + protocol, connected(rival).is_some())))
}

/// The network that the kernel's route connects directly, if it does, whoever made the route.
pub(crate) fn connected(route: &netlink::Route) -> Option<Prefix> {
    let is_direct = route.kind == RouteType::Unicast
        && !route.has_gateway
        && route.device.is_some()
        // IPv6 has no scopes of routes.
        && (route.to.is_ipv6() || route.scope == RouteScope::Link);
    Some(route.to).filter(|to| is_direct && !to.is_default())
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.via {
            Via::Device(_) => "",
            Via::Unreachable => "unreachable ",
            Via::Throw => "throw ",
        };
        write!(f, "route {kind}{} in table ", self.to)?;
        match self.table {
            MAIN_TABLE => write!(f, "main"),
            number => write!(f, "{number}"),
        }
    }
}
