//! Links, rules and routes of this host, as far as the checks need them.

use std::net::IpAddr;

pub(super) use convoy_netlink::{Link, MAIN_TABLE, Netlink, Route, Rule};
use convoy_netlink::{PathMtu, RouteType};

/// Reads the rules of both families, in the order in which the kernel takes them.
pub(super) async fn rules(netlink: &Netlink) -> Vec<Rule> {
    let mut rules = Vec::new();
    for ipv6 in [false, true] {
        // A kernel without IPv6 has none.
        rules.extend(netlink.rules(ipv6).await.unwrap_or_default());
    }
    rules
}

/// Reads the routes of all tables that lead out by a device.
pub(super) async fn routes(netlink: &Netlink) -> Vec<Route> {
    let mut routes = Vec::new();
    for ipv6 in [false, true] {
        routes.extend(netlink.routes(ipv6, None).await.unwrap_or_default());
    }
    routes.retain(|route| route.kind == RouteType::Unicast && route.device.is_some());
    routes
}

/// Looks up how a datagram with `mark` leaves; `None` if there is no route.
pub(super) async fn way(netlink: &Netlink, to: IpAddr, mark: u32) -> Option<Route> {
    let found = netlink.route_to(to, mark, PathMtu::Learnt).await;
    found.ok()?.filter(|it| it.kind != RouteType::Unreachable)
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
            let rules = rules(&netlink).await;
            let to_main = |rule: &&Rule| !rule.ipv6 && rule.table == MAIN_TABLE;
            let rule = rules.iter().find(to_main).unwrap();
            assert_eq!((rule.mark, rule.suppressed), (None, None));
            let way = way(&netlink, [127, 0, 0, 1].into(), 0).await.unwrap();
            assert_eq!(way.device, Some(1));
        });
    }
}
