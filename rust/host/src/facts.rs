//! The host's state that a plan depends on.

use std::{fs, io, net::IpAddr};

use crate::{
    change::What,
    desired::{Desired, smallest_mtu},
    error::HostError,
    firewall::Allowed,
    netlink::{Link, Netlink, Rule},
    prefix::Prefix,
};

/// The bytes that WireGuard adds to a packet over IPv6: 40 of IPv6, 8 of UDP, 32 of its own.
const OVERHEAD: u32 = 80;

/// Of a host without any route.
const ETHERNET_MTU: u32 = 1500;

/// The host's state that a plan depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) link: Link,
    /// Whether the interface can have IPv6 addresses.
    pub(crate) has_ipv6: bool,
    /// The interface's MTU in bytes: the configured one, or else the one that fits the routes to the endpoints, and
    /// no larger than allowed.
    pub(crate) mtu: u32,
    /// The priority before which new rules go, for IPv4 and IPv6.
    pub(crate) priorities: [u32; 2],
    pub(crate) allowed: Allowed,
}

impl Facts {
    /// Looks at the host. `made` holds the changes that are ours already.
    pub(crate) async fn gather(
        netlink: &Netlink,
        interface: &str,
        desired: &Desired,
        made: &[&What],
    ) -> Result<Self, HostError> {
        let link = netlink
            .link_by_name(interface)
            .await
            .map_err(HostError::kernel(
                "look up",
                format!("interface {interface}"),
            ))?
            .ok_or_else(|| HostError::NoInterface(interface.to_owned()))?;
        let has_ipv6 = has_ipv6(interface);
        let gathered = Self::routes(netlink, &link, desired, has_ipv6, made).await;
        let (mtu, priorities, allowed) = gathered.map_err(HostError::kernel("read", "routes"))?;
        Ok(Self {
            link,
            has_ipv6,
            mtu,
            priorities,
            allowed,
        })
    }

    async fn routes(
        netlink: &Netlink,
        link: &Link,
        desired: &Desired,
        has_ipv6: bool,
        made: &[&What],
    ) -> io::Result<(u32, [u32; 2], Allowed)> {
        let mark = desired.fwmark.unwrap_or(0);
        let ours: Vec<Rule> = made
            .iter()
            .filter_map(|what| match what {
                What::Rule(rule) => Some(*rule),
                _ => None,
            })
            .collect();
        let mut allowed = Allowed {
            excluded: desired.excluded.clone(),
            ..Allowed::default()
        };
        let mut priorities = [0; 2];
        let follows_lan = desired.exclude_local || desired.kill_switch.is_some();
        for ipv6 in [false, true] {
            // Ours stay where they are: two tunnels would overtake each other for ever.
            let known = ours.iter().find(|rule| rule.ipv6 == ipv6);
            priorities[usize::from(ipv6)] = match known {
                Some(rule) => rule.priority + rule.selector.distance(),
                None => netlink.lowest_priority(ipv6).await?,
            };
            if follows_lan {
                let networks = netlink.connected(link.index, ipv6).await?;
                allowed.connected.extend(networks);
            }
        }
        if desired.exclude_local {
            allowed.excluded.extend(allowed.connected.iter().copied());
        }
        if desired.kill_switch.is_some() {
            allowed.underlay = underlay(netlink, link, desired, mark).await?;
        }
        let mut prefixes = desired.addresses.iter().chain(&desired.allowed);
        let carries_ipv6 = has_ipv6 && prefixes.any(Prefix::is_ipv6);
        let mtu = match desired.mtu {
            Some(mtu) => mtu,
            None => {
                let mtu = fitting_mtu(netlink, link, &desired.endpoints, mark).await?;
                if carries_ipv6 {
                    mtu.max(smallest_mtu(true))
                } else {
                    mtu
                }
            }
        };
        let mtu = limited(mtu, desired.mtu_at_most, carries_ipv6);
        Ok((mtu, priorities, allowed))
    }
}

/// The MTU, no larger than `at_most`, which in turn does not go below the smallest one.
fn limited(mtu: u32, at_most: Option<u32>, carries_ipv6: bool) -> u32 {
    let at_most = at_most.map(|most| most.max(smallest_mtu(carries_ipv6)));
    at_most.map_or(mtu, |most| mtu.min(most))
}

/// As wg-quick(8) does, but fits all endpoints: the route's MTU or else its device's, less the overhead; of the
/// default route if no endpoint has a route.
async fn fitting_mtu(
    netlink: &Netlink,
    link: &Link,
    endpoints: &[IpAddr],
    mark: u32,
) -> io::Result<u32> {
    let mut smallest = None::<u32>;
    for endpoint in endpoints {
        let Some(path) = netlink.path(*endpoint, mark).await? else {
            continue;
        };
        if path.device == link.index {
            continue;
        }
        let mtu = match path.mtu {
            Some(mtu) => Some(mtu),
            None => device_mtu(netlink, path.device).await?,
        };
        smallest = smallest.into_iter().chain(mtu).min();
    }
    if smallest.is_none() {
        for device in netlink.default_devices(false).await? {
            if device != link.index {
                let mtu = device_mtu(netlink, device).await?;
                smallest = smallest.into_iter().chain(mtu).min();
            }
        }
    }
    Ok(smallest.unwrap_or(ETHERNET_MTU).saturating_sub(OVERHEAD))
}

async fn device_mtu(netlink: &Netlink, index: u32) -> io::Result<Option<u32>> {
    let link = netlink.link_by_index(index).await?;
    Ok(link.map(|link| link.mtu))
}

/// The devices that lead to the endpoints, and those of default routes; without any, all that may lead out later.
async fn underlay(
    netlink: &Netlink,
    link: &Link,
    desired: &Desired,
    mark: u32,
) -> io::Result<Vec<String>> {
    let mut indices = Vec::new();
    for endpoint in &desired.endpoints {
        indices.extend(netlink.path(*endpoint, mark).await?.map(|path| path.device));
    }
    for ipv6 in [false, true] {
        indices.extend(netlink.default_devices(ipv6).await?);
    }
    indices.sort_unstable();
    indices.dedup();
    let mut names = Vec::new();
    for index in indices.into_iter().filter(|index| *index != link.index) {
        let link = netlink.link_by_index(index).await?;
        names.extend(link.map(|link| link.name).filter(|name| name != "lo"));
    }
    if names.is_empty() {
        names = netlink.links_out(&link.name).await?;
    }
    Ok(names)
}

/// Whether the kernel has IPv6 and nobody has turned it off for the interface.
fn has_ipv6(interface: &str) -> bool {
    ["all", interface].iter().all(|name| {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_lowers_any_mtu_but_not_below_the_smallest() {
        for (mtu, at_most, carries_ipv6, expected) in [
            (1420, None, true, 1420),
            (1420, Some(1328), true, 1328),
            (1420, Some(1500), true, 1420),
            (1420, Some(1000), true, 1280),
            (1420, Some(1000), false, 1000),
            (1420, Some(100), false, 576),
            // A configured MTU may be smaller.
            (1200, Some(1000), true, 1200),
            (500, Some(100), false, 500),
        ] {
            let given = (mtu, at_most, carries_ipv6);
            assert_eq!(limited(mtu, at_most, carries_ipv6), expected, "{given:?}");
        }
    }
}
