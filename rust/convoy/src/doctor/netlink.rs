//! Links, rules and routes of this host, as far as the checks need them.

use std::{io, net::IpAddr};

pub(super) use convoy_netlink::{Link, MAIN_TABLE, Prefix, Rule};
use convoy_netlink::{PathMtu, RouteType};

/// A connection to rtnetlink.
pub(super) struct Netlink(convoy_netlink::Netlink);

/// A route out by a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) ipv6: bool,
    pub(super) table: u32,
    /// `None` for a default route.
    pub(super) to: Option<Prefix>,
    /// Bits of the destination's prefix.
    pub(super) length: u8,
    pub(super) device: u32,
}

/// How datagrams to an address leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) device: u32,
    /// The route's own MTU, or one learnt from ICMP, in bytes.
    pub(super) mtu: Option<u32>,
}

impl Netlink {
    /// Needs a tokio runtime.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(convoy_netlink::Netlink::open()?))
    }

    pub(super) async fn links(&self) -> io::Result<Vec<Link>> {
        Ok(self.0.links().await?)
    }

    /// Reads the rules of both families, in the order in which the kernel takes them.
    pub(super) async fn rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            // A kernel without IPv6 has none.
            rules.extend(self.0.rules(ipv6).await.unwrap_or_default());
        }
        rules
    }

    /// The routes of all tables that lead out by a device.
    pub(super) async fn routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for ipv6 in [false, true] {
            let found = self.0.routes(ipv6, None).await.unwrap_or_default();
            routes.extend(found.iter().filter_map(Route::of));
        }
        routes
    }

    /// How a datagram with `mark` leaves; `None` if there is no route.
    pub(super) async fn way(&self, to: IpAddr, mark: u32) -> Option<Way> {
        let found = self.0.route_to(to, mark, PathMtu::Learnt).await;
        let route = found.ok()??;
        let device = route
            .device
            .filter(|_| route.kind != RouteType::Unreachable)?;
        Some(Way {
            device,
            mtu: route.mtu,
        })
    }
}

impl Route {
    fn of(found: &convoy_netlink::Route) -> Option<Self> {
        let device = found.device.filter(|_| found.kind == RouteType::Unicast)?;
        Some(Self {
            ipv6: found.to.is_ipv6(),
            table: found.table,
            to: Some(found.to).filter(|to| !to.is_default()),
            length: found.to.length(),
            device,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_the_rules_that_every_host_has_are_found() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let netlink = Netlink::open().unwrap();
            let links = netlink.links().await.unwrap();
            let loopback = links.iter().find(|link| link.name == "lo").unwrap();
            assert_eq!((loopback.index, loopback.kind.as_str()), (1, ""));
            let rules = netlink.rules().await;
            let to_main = |rule: &&Rule| !rule.ipv6 && rule.table == MAIN_TABLE;
            let rule = rules.iter().find(to_main).unwrap();
            assert_eq!((rule.mark, rule.suppressed), (None, None));
            let way = netlink.way([127, 0, 0, 1].into(), 0).await.unwrap();
            assert_eq!(way.device, 1);
        });
    }
}
