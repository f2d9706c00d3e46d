//! Routes, and look-ups in the kernel's tables.
//!
//! Our routes have `protocol kernel`. systemd-networkd removes foreign routes of the links that it configures,
//! and foreign routes without a device, such as our `unreachable`, unless their protocol is `kernel`
//! (networkd.conf(5), `ManageForeignRoutes`); `static` is spared only with `KeepConfiguration=static`.

use std::{
    collections::HashSet,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
        RouteProtocol, RouteScope, RouteType,
    },
};
use serde::{Deserialize, Serialize};

use crate::Netlink;
use crate::Prefix;

/// The table `main`.
pub const MAIN_TABLE: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// The metric of a default route that catches packets only while no other default exists.
const LAST: u32 = u32::MAX - 1;

/// A route of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    pub table: u32,
    pub to: Prefix,
    pub via: Via,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Out by the device with this index.
    Device(u32),
    /// Nowhere, if no other route takes the packet.
    Unreachable,
    /// Back to the next rule.
    Throw,
}

/// Networks of the main table.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Networks on the next link.
    pub connected: Vec<Prefix>,
    /// All of them, without default routes.
    pub routed: Vec<Prefix>,
    /// Whether there is a default route.
    pub has_default: bool,
}

/// How datagrams to an endpoint leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub device: u32,
    /// The MTU set on the route itself, in bytes.
    pub mtu: Option<u32>,
}

impl Route {
    /// Whether packets could leave outside the tunnel without it.
    pub fn guards(&self) -> bool {
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

    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family(self.to.is_ipv6());
        message.header.destination_prefix_length = self.to.length();
        message.header.protocol = RouteProtocol::Kernel;
        message.header.scope = match self.via {
            Via::Device(_) if !self.to.is_ipv6() => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        message.header.kind = match self.via {
            Via::Device(_) => RouteType::Unicast,
            Via::Unreachable => RouteType::Unreachable,
            Via::Throw => RouteType::Throw,
        };
        let destination = RouteAttribute::Destination(self.to.network().address().into());
        let device = match self.via {
            Via::Device(index) => Some(RouteAttribute::Oif(index)),
            _ => None,
        };
        message.attributes = vec![
            RouteAttribute::Table(self.table),
            RouteAttribute::Priority(self.metric()),
        ];
        message
            .attributes
            .extend((!self.to.is_default()).then_some(destination));
        message.attributes.extend(device);
        message
    }

    /// The kernel's route, if it can be one of ours.
    fn parse(message: &RouteMessage) -> Option<Self> {
        let via = match message.header.kind {
            RouteType::Unicast => Via::Device(leads_out_by(message)?),
            RouteType::Unreachable => Via::Unreachable,
            RouteType::Throw => Via::Throw,
            _ => return None,
        };
        let route = Self {
            table: table_of(message),
            to: destination(message)?,
            via,
        };
        let metric = message.attributes.iter().find_map(|a| match a {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        });
        let is_ours = message.header.protocol == RouteProtocol::Kernel
            && metric.unwrap_or(0) == route.metric();
        is_ours.then_some(route)
    }
}

impl Netlink {
    pub async fn add_route(&self, route: &Route) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.add(message).await
    }

    pub async fn remove_route(&self, route: &Route) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(route.message());
        self.change(message).await
    }

    /// The routes in a table that can be ours.
    pub async fn routes_in(&self, table: u32, ipv6: bool) -> io::Result<HashSet<Route>> {
        let found = self.routes(filter(ipv6, table)).await?;
        Ok(found.iter().filter_map(Route::parse).collect())
    }

    /// Whether a table has no routes of either family.
    pub async fn is_empty_table(&self, table: u32) -> io::Result<bool> {
        for ipv6 in [false, true] {
            let found = self.routes(filter(ipv6, table)).await?;
            if found.iter().any(|message| table_of(message) == table) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The networks of the main table that no tunnel leads to.
    pub async fn outside(&self, tunnels: &[u32], ipv6: bool) -> io::Result<Outside> {
        let found = self.routes(filter(ipv6, MAIN_TABLE)).await?;
        let mut outside = Outside::default();
        for message in &found {
            let devices = devices_of(message);
            let leads_out = message.header.kind == RouteType::Unicast
                && !devices.is_empty()
                && !devices.iter().any(|device| tunnels.contains(device));
            let to = destination(message).filter(|_| leads_out);
            let Some(to) = to.map(|to| to.network()) else {
                continue;
            };
            if to.is_default() {
                outside.has_default = true;
                continue;
            }
            outside.connected.extend(connected(message));
            outside.routed.push(to);
        }
        for networks in [&mut outside.connected, &mut outside.routed] {
            networks.sort();
            networks.dedup();
        }
        Ok(outside)
    }

    /// The devices of default routes in the main table.
    pub async fn default_devices(&self, ipv6: bool) -> io::Result<Vec<u32>> {
        let found = self.routes(filter(ipv6, MAIN_TABLE)).await?;
        let defaults = found
            .iter()
            .filter(|message| message.header.destination_prefix_length == 0);
        Ok(defaults.flat_map(devices_of).collect())
    }

    /// How a datagram with `mark` leaves; `None` if there is no route.
    pub async fn path(&self, to: IpAddr, mark: u32) -> io::Result<Option<Path>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to.is_ipv6());
        message.header.destination_prefix_length = Prefix::host(to).length();
        // The route's own MTU, not one learnt from ICMP messages, which anybody can forge.
        message.header.flags = RouteFlags::FibMatch;
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Mark(mark),
        ];
        let request = RouteNetlinkMessage::GetRoute(message);
        let found = match self.ask(request, 0).await {
            Ok(found) => found,
            Err(_) => return Ok(None),
        };
        Ok(found.iter().find_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => path(message),
            _ => None,
        }))
    }

    /// The device, gateway and source address of datagrams with `mark`, to compare with a later look-up.
    pub async fn way(&self, to: IpAddr, mark: u32) -> String {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to.is_ipv6());
        message.header.destination_prefix_length = Prefix::host(to).length();
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Mark(mark),
        ];
        let found = self.ask(RouteNetlinkMessage::GetRoute(message), 0).await;
        let mut way = String::new();
        if let Ok([RouteNetlinkMessage::NewRoute(route), ..]) = found.as_deref() {
            for attribute in &route.attributes {
                match attribute {
                    RouteAttribute::Oif(index) => way += &self.carrier(*index).await,
                    RouteAttribute::Gateway(_) | RouteAttribute::PrefSource(_) => {
                        way += &format!("{attribute:?}");
                    }
                    _ => {}
                }
            }
        }
        way
    }

    async fn carrier(&self, index: u32) -> String {
        let link = self.link_by_index(index).await.ok().flatten();
        let has_carrier = link.is_some_and(|link| link.has_carrier);
        format!("{index} {has_carrier}")
    }

    /// The other route to the same network as one of ours, as ip(8) shows it, and whether it is that of a connected
    /// network.
    pub async fn rival(&self, route: &Route) -> io::Result<Option<(String, bool)>> {
        let found = self.routes(filter(route.to.is_ipv6(), route.table)).await?;
        let rival = found.iter().find(|message| {
            let is_same = destination(message) == Some(route.to.network());
            table_of(message) == route.table && is_same && Route::parse(message) != Some(*route)
        });
        let Some(rival) = rival else {
            return Ok(None);
        };
        let mut shown = route.to.network().to_string();
        let gateway = rival.attributes.iter().find_map(|a| match a {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(IpAddr::from(*v4)),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(IpAddr::from(*v6)),
            _ => None,
        });
        if let Some(gateway) = gateway {
            shown += &format!(" via {gateway}");
        }
        for device in devices_of(rival) {
            if let Some(link) = self.link_by_index(device).await? {
                shown += &format!(" dev {}", link.name);
            }
        }
        let protocol = match rival.header.protocol {
            RouteProtocol::Kernel => " proto kernel",
            RouteProtocol::Dhcp => " proto dhcp",
            RouteProtocol::Static => " proto static",
            RouteProtocol::Ra => " proto ra",
            _ => "",
        };
        Ok(Some((shown + protocol, connected(rival).is_some())))
    }

    async fn routes(&self, filter: RouteMessage) -> io::Result<Vec<RouteMessage>> {
        let found = self.dump(RouteNetlinkMessage::GetRoute(filter)).await?;
        let routes = found.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        });
        Ok(routes.collect())
    }
}

/// The table of the kernel's route.
pub fn table_of(message: &RouteMessage) -> u32 {
    let table = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(message.header.table.into())
}

/// The device of the kernel's route, unless it has several.
pub fn leads_out_by(message: &RouteMessage) -> Option<u32> {
    message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

/// The network that the kernel's route connects directly, if it does, whoever made the route.
pub fn connected(message: &RouteMessage) -> Option<Prefix> {
    let has_gateway = message
        .attributes
        .iter()
        .any(|a| matches!(a, RouteAttribute::Gateway(_) | RouteAttribute::Via(_)));
    let is_direct = message.header.kind == RouteType::Unicast
        && !has_gateway
        && leads_out_by(message).is_some()
        // IPv6 has no scopes of routes.
        && (message.header.address_family == AddressFamily::Inet6
            || message.header.scope == RouteScope::Link);
    destination(message).filter(|to| is_direct && !to.is_default())
}

fn devices_of(message: &RouteMessage) -> Vec<u32> {
    let hops = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::MultiPath(hops) => Some(hops.iter().map(|hop| hop.interface_index)),
        _ => None,
    });
    let hops = hops.into_iter().flatten();
    hops.chain(leads_out_by(message)).collect()
}

fn path(message: &RouteMessage) -> Option<Path> {
    let metrics = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Metrics(metrics) => Some(metrics),
        _ => None,
    });
    let mtu = metrics
        .into_iter()
        .flatten()
        .find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
            _ => None,
        });
    let device = *devices_of(message).first()?;
    Some(Path { device, mtu })
}

fn destination(message: &RouteMessage) -> Option<Prefix> {
    let ipv6 = message.header.address_family == AddressFamily::Inet6;
    let none = if ipv6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let address = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Destination(RouteAddress::Inet(v4)) => Some(IpAddr::from(*v4)),
        RouteAttribute::Destination(RouteAddress::Inet6(v6)) => Some(IpAddr::from(*v6)),
        _ => None,
    });
    let length = message.header.destination_prefix_length;
    Prefix::new(address.unwrap_or(none), length).ok()
}

fn filter(ipv6: bool, table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(ipv6);
    message.attributes = vec![RouteAttribute::Table(table)];
    message
}

fn family(ipv6: bool) -> AddressFamily {
    if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
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
