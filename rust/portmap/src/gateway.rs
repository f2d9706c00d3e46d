//! The router that packets to the internet go to.

use std::net::{IpAddr, Ipv4Addr};

use convoy_netlink::{MAIN_TABLE, Netlink, Route, RouteType};

use crate::problem::Problem;

/// A router on a connected network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    pub(crate) address: Ipv4Addr,
    /// This machine's interface on that network.
    pub(crate) interface: String,
}

/// Looks up the gateway of the best default route of IPv4. A tunnel's own default routes name none.
pub(crate) async fn find() -> Result<Gateway, Problem> {
    let failed = |error: convoy_netlink::NetlinkError| Problem::System(error.to_string());
    let netlink = Netlink::open().map_err(failed)?;
    let routes = netlink.routes(false, Some(MAIN_TABLE)).await;
    let (address, device) = best(&routes.map_err(failed)?).ok_or(Problem::NoGateway)?;
    let link = netlink.link_by_index(device).await.map_err(failed)?;
    let interface = link.ok_or(Problem::NoGateway)?.name;
    Ok(Gateway { address, interface })
}

fn best(routes: &[Route]) -> Option<(Ipv4Addr, u32)> {
    let usable = routes.iter().filter_map(|route| {
        let is_default = route.kind == RouteType::Unicast && route.to.is_default();
        match route.gateway {
            Some(IpAddr::V4(gateway)) if is_default => Some((route.metric, gateway, route.device?)),
            _ => None,
        }
    });
    let best = usable.min_by_key(|(metric, ..)| *metric);
    best.map(|(_, gateway, device)| (gateway, device))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
