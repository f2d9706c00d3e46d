//! Routes, and look-ups in the kernel's tables.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
        RouteNextHop, RouteNextHopFlags, RouteProtocol, RouteScope, RouteType,
    },
};

use convoy_types::Prefix;

use crate::{Netlink, connection::family, error::NetlinkError};

/// The table `main`.
pub const MAIN_TABLE: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// The table `local`: the kernel's own routes to the addresses of this host.
pub const LOCAL_TABLE: u32 = 255;

/// A route, as the kernel has it or is to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of its table.
    pub table: u32,
    /// Destinations that it takes.
    pub to: Prefix,
    /// Its effect on a packet.
    pub kind: RouteType,
    /// Index of the device by which packets leave, unless it has several next hops.
    pub device: Option<u32>,
    /// Its several next hops.
    pub hops: Vec<NextHop>,
    /// The next hop's address, of the same family.
    pub gateway: Option<IpAddr>,
    /// Whether packets go to a next hop, not to their destinations directly.
    pub has_gateway: bool,
    /// The source address of packets that have none yet.
    pub source: Option<IpAddr>,
    /// Its rank among routes to the same network; the lowest is taken.
    pub metric: u32,
    /// The program that made it.
    pub protocol: RouteProtocol,
    /// The distance of its destinations; IPv6 has no scopes of routes.
    pub scope: RouteScope,
    /// The MTU that is set on the route itself, or that a look-up found learnt from ICMP, in bytes. Not written.
    pub mtu: Option<u32>,
}

/// One of several next hops of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Index of the device by which packets leave.
    pub device: u32,
    /// Its address, of the same family as the route.
    pub gateway: Option<IpAddr>,
    /// Whether its device is down or has no carrier.
    pub is_down: bool,
}

/// The MTU of a route that a look-up finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMtu {
    /// The MTU set on the route itself, and the route as it is in the table.
    OfRoute,
    /// Or else one learnt from ICMP messages, which anybody can forge; and the next hop that a packet would take.
    Learnt,
}

impl Route {
    /// A route of a table to a network, by a device.
    #[must_use]
    pub fn by_device(table: u32, to: Prefix, device: u32) -> Self {
        Self {
            table,
            to,
            kind: RouteType::Unicast,
            device: Some(device),
            hops: Vec::new(),
            gateway: None,
            has_gateway: false,
            source: None,
            metric: 0,
            protocol: RouteProtocol::Static,
            scope: if to.is_ipv6() {
                RouteScope::Universe
            } else {
                RouteScope::Link
            },
            mtu: None,
        }
    }

    /// Iterates over the devices by which packets leave.
    pub fn devices(&self) -> impl Iterator<Item = u32> {
        self.hops.iter().map(|hop| hop.device).chain(self.device)
    }
}

impl Netlink {
    /// Lists the routes of a family, in one table or in all; none if the kernel lacks the table or the family.
    pub async fn routes(&self, ipv6: bool, table: Option<u32>) -> Result<Vec<Route>, NetlinkError> {
        let mut filter = RouteMessage::default();
        filter.header.address_family = family(ipv6);
        filter.attributes.extend(table.map(RouteAttribute::Table));
        let found = self.dump(RouteNetlinkMessage::GetRoute(filter)).await;
        let found = found.map_err(NetlinkError::on("list", "routes"))?;
        let routes = found.iter().filter_map(of_message);
        Ok(routes
            .filter(|it| table.is_none_or(|table| it.table == table))
            .collect())
    }

    /// Adds a route.
    ///
    /// # Errors
    /// `EEXIST` if its table has one to the same network with the same metric; else if the kernel refuses.
    pub async fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.add(message).await.map_err(about("add", route))
    }

    /// Removes a route.
    pub async fn remove_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRoute(route.message());
        self.change(message).await.map_err(about("remove", route))
    }

    /// Looks up the route of a datagram with a mark, or 0 for none.
    ///
    /// # Errors
    /// `ENETUNREACH` and others if there is no route, or one that refuses.
    pub async fn route_to(
        &self,
        to: IpAddr,
        mark: u32,
        mtu: PathMtu,
    ) -> Result<Option<Route>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to.is_ipv6());
        message.header.destination_prefix_length = Prefix::host(to).length();
        if mtu == PathMtu::OfRoute {
            message.header.flags = RouteFlags::FibMatch;
        }
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Mark(mark),
        ];
        let found = self.look_up(RouteNetlinkMessage::GetRoute(message)).await;
        let found = found.map_err(NetlinkError::on("look up", format_args!("route to {to}")))?;
        Ok(found.iter().find_map(of_message))
    }
}

fn about(operation: &'static str, route: &Route) -> impl FnOnce(io::Error) -> NetlinkError {
    NetlinkError::on(
        operation,
        format!("route {} in table {}", route.to, route.table),
    )
}

fn of_message(message: &RouteNetlinkMessage) -> Option<Route> {
    match message {
        RouteNetlinkMessage::NewRoute(message) => Route::parse(message),
        _ => None,
    }
}

impl Route {
    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family(self.to.is_ipv6());
        message.header.destination_prefix_length = self.to.length();
        message.header.protocol = self.protocol;
        message.header.scope = self.scope;
        message.header.kind = self.kind;
        let destination = RouteAttribute::Destination(self.to.network().address().into());
        message.attributes = vec![
            RouteAttribute::Table(self.table),
            RouteAttribute::Priority(self.metric),
        ];
        let destination = (!self.to.is_default()).then_some(destination);
        let gateway = self.gateway.map(|it| RouteAttribute::Gateway(it.into()));
        let source = self.source.map(|it| RouteAttribute::PrefSource(it.into()));
        let device = self.device.map(RouteAttribute::Oif);
        let more = [destination, gateway, source, device];
        message.attributes.extend(more.into_iter().flatten());
        message
    }

    pub(crate) fn parse(message: &RouteMessage) -> Option<Self> {
        let any = match message.header.address_family {
            AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        let mut to = any;
        let mut route = Self {
            table: message.header.table.into(),
            kind: message.header.kind,
            device: None,
            protocol: message.header.protocol,
            scope: message.header.scope,
            ..Self::by_device(MAIN_TABLE, Prefix::host(any), 0)
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::Destination(it) => to = address(it).unwrap_or(any),
                RouteAttribute::Oif(index) => route.device = Some(*index),
                RouteAttribute::MultiPath(hops) => {
                    route.hops = hops.iter().map(NextHop::parse).collect();
                }
                RouteAttribute::Gateway(it) => {
                    (route.gateway, route.has_gateway) = (address(it), true);
                }
                RouteAttribute::Via(_) => route.has_gateway = true,
                RouteAttribute::PrefSource(it) => route.source = address(it),
                RouteAttribute::Priority(metric) => route.metric = *metric,
                RouteAttribute::Metrics(metrics) => route.mtu = mtu(metrics),
                _ => {}
            }
        }
        route.to = Prefix::new(to, message.header.destination_prefix_length)?;
        Some(route)
    }
}

impl NextHop {
    fn parse(hop: &RouteNextHop) -> Self {
        let down = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
        Self {
            device: hop.interface_index,
            gateway: hop.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Gateway(it) => address(it),
                _ => None,
            }),
            is_down: hop.flags.intersects(down),
        }
    }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn mtu(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::route::RouteVia;

    use super::*;

    #[test]
    fn a_route_survives_its_message() {
        for (to, gateway, source) in [
            ("0.0.0.0/0", Some("192.0.2.1"), Some("192.0.2.7")),
            ("10.0.0.0/8", None, None),
            ("::/0", Some("fe80::1"), None),
            ("2001:db8::/32", None, Some("2001:db8::7")),
        ] {
            let parsed = |text: Option<&str>| text.map(|it| it.parse().unwrap());
            let route = Route {
                gateway: parsed(gateway),
                has_gateway: gateway.is_some(),
                source: parsed(source),
                metric: 100,
                ..Route::by_device(51_820, to.parse().unwrap(), 7)
            };
            assert_eq!(Route::parse(&route.message()), Some(route), "{to}");
        }
    }

    #[test]
    fn next_hops_and_metrics_are_read_from_a_message() {
        let route = Route::by_device(MAIN_TABLE, "10.0.0.0/8".parse().unwrap(), 7);
        let mut message = route.message();
        let hop = |index| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop
        };
        let mut second = hop(3);
        second.flags = RouteNextHopFlags::Dead;
        let gateway = RouteAddress::Inet(Ipv4Addr::new(192, 0, 2, 3));
        second.attributes.push(RouteAttribute::Gateway(gateway));
        message.attributes.extend([
            RouteAttribute::MultiPath(vec![hop(2), second]),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]),
            RouteAttribute::Via(RouteVia::Inet6(Ipv6Addr::LOCALHOST)),
        ]);
        let parsed = Route::parse(&message).unwrap();
        assert_eq!(parsed.devices().collect::<Vec<_>>(), [2, 3, 7]);
        let second = NextHop {
            device: 3,
            gateway: Some([192, 0, 2, 3].into()),
            is_down: true,
        };
        assert_eq!(parsed.hops[1], second);
        assert_eq!((parsed.mtu, parsed.has_gateway), (Some(1400), true));
        // The kernel tells 0 for none.
        let none = RouteAttribute::Metrics(vec![RouteMetric::Mtu(0)]);
        message.attributes.push(none);
        assert_eq!(Route::parse(&message).unwrap().mtu, None);
    }
}
