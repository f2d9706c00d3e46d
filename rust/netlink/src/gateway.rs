//! The router that packets to the internet go to.

use std::net::{IpAddr, Ipv4Addr};

use crate::{MAIN_TABLE, Netlink, NetlinkError, Route, RouteType};

impl Netlink {
    /// Returns the gateway of the best default route of IPv4 in the main table, and the index of its device. A tunnel's
    /// own default routes name none.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub async fn default_gateway(&self) -> Result<Option<(Ipv4Addr, u32)>, NetlinkError> {
        let routes = self.routes(false, Some(MAIN_TABLE)).await?;
        Ok(best(&routes))
    }
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
