//! The router that packets to the internet go to.

use std::net::{IpAddr, Ipv4Addr};

use crate::{MAIN_TABLE, Netlink, NetlinkError, Route, RouteType};

impl Netlink {
    /// Returns the gateway of the best default route of IPv4 in the main table, the first usable one of several next
    /// hops, and the index of its device. A tunnel's own default routes name none.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub async fn default_gateway(&self) -> Result<Option<(Ipv4Addr, u32)>, NetlinkError> {
        let routes = self.routes(false, Some(MAIN_TABLE)).await?;
        Ok(best(&routes))
    }
}

fn best(routes: &[Route]) -> Option<(Ipv4Addr, u32)> {
    let is_default = |it: &&Route| it.kind == RouteType::Unicast && it.to.is_default();
    let usable = routes.iter().filter(is_default).filter_map(|route| {
        let (gateway, device) = gateways(route).next()?;
        Some((route.metric, gateway, device))
    });
    let best = usable.min_by_key(|(metric, ..)| *metric);
    best.map(|(_, gateway, device)| (gateway, device))
}

/// Iterates over the gateways of a route, with their devices. Packets take any of several, so that the first will do.
fn gateways(route: &Route) -> impl Iterator<Item = (Ipv4Addr, u32)> {
    let one = route.gateway.zip(route.device);
    let several = route.hops.iter().filter(|hop| !hop.is_down);
    let several = several.filter_map(|hop| Some((hop.gateway?, hop.device)));
    let all = one.into_iter().chain(several);
    all.filter_map(|(gateway, device)| match gateway {
        IpAddr::V4(gateway) => Some((gateway, device)),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextHop;

    #[test]
    fn the_best_default_route_with_a_gateway_is_taken() {
        let route = |to: &str, device, metric, gateway: Option<&str>| Route {
            gateway: gateway.map(|it| it.parse().unwrap()),
            metric,
            ..Route::by_device(MAIN_TABLE, to.parse().unwrap(), device)
        };
        let refuses = Route {
            kind: RouteType::BlackHole,
            ..route("0.0.0.0/0", 5, 1, Some("192.0.2.5"))
        };
        let routes = [
            route("0.0.0.0/0", 1, 0, None),
            route("10.0.0.0/8", 2, 0, Some("192.0.2.2")),
            route("0.0.0.0/0", 3, 600, Some("192.0.2.3")),
            route("0.0.0.0/0", 4, 100, Some("192.0.2.4")),
            refuses,
        ];
        assert_eq!(best(&routes), Some(([192, 0, 2, 4].into(), 4)));
        assert_eq!(best(&routes[..2]), None);
    }

    #[test]
    fn the_first_usable_next_hop_of_the_best_default_route_is_taken() {
        let hop = |device, gateway: Option<&str>, is_down| NextHop {
            device,
            gateway: gateway.map(|it| it.parse().unwrap()),
            is_down,
        };
        let route = |metric, hops| Route {
            device: None,
            metric,
            hops,
            ..Route::by_device(MAIN_TABLE, "0.0.0.0/0".parse().unwrap(), 0)
        };
        let backup = route(200, vec![hop(5, Some("192.0.2.5"), false)]);
        let best_hops = vec![
            hop(1, None, false),
            hop(2, Some("192.0.2.2"), true),
            hop(3, Some("192.0.2.3"), false),
            hop(4, Some("192.0.2.4"), false),
        ];
        let routes = [backup, route(100, best_hops)];
        assert_eq!(best(&routes), Some(([192, 0, 2, 3].into(), 3)));
    }
}
