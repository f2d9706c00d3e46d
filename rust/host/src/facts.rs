//! The host's state that a plan depends on.

mod families;

use std::net::IpAddr;

use convoy_netlink::{Link, Netlink, NetlinkError};
use convoy_types::Prefix;

use crate::{
    change::What,
    desired::{Desired, smallest_mtu},
    error::HostError,
    firewall::Allowed,
    link::{links_out, tunnels},
    local::Local,
    route::{Outside, default_devices, outside, path},
    rule::{self, Place},
};

pub(crate) use families::Ipv6;
use families::half;

/// The bytes that WireGuard adds to a packet over IPv6: 40 of IPv6, 8 of UDP, 32 of its own.
const OVERHEAD: u32 = 80;

/// The smallest MTU in bytes that the kernel takes for a TUN device (`ETH_MIN_MTU`; RFC 791 §3.2).
const LEAST_MTU: u32 = 68;

/// MTU of a host without any route.
const ETHERNET_MTU: u32 = 1500;

/// The host's state that a plan depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) link: Link,
    pub(crate) ipv6: Ipv6,
    /// The interface's MTU in bytes: the configured one, or else the one that fits the routes to the endpoints, and
    /// no larger than allowed.
    pub(crate) mtu: u32,
    /// Priorities of new rules, for IPv4 and IPv6.
    pub(crate) places: [Place; 2],
    pub(crate) allowed: Allowed,
    /// Networks within the tunnel's ones to which the host has routes of its own, where those prevail.
    pub(crate) nearer: Vec<Prefix>,
    /// Parts of the desired state that this host lacks, and packets that take an unexpected way.
    pub(crate) warnings: Vec<String>,
}

impl Facts {
    /// Returns whether the interface cannot take packets to these addresses.
    pub(crate) fn cannot_carry(&self, to: &Prefix) -> bool {
        to.is_ipv6() && self.ipv6 != Ipv6::On
    }

    /// Gathers the facts. `made` holds the changes that are already ours.
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
        let gathered = Self::routes(netlink, link, desired, made).await;
        gathered.map_err(HostError::kernel("read", "routes"))
    }

    async fn routes(
        netlink: &Netlink,
        link: Link,
        desired: &Desired,
        made: &[&What],
    ) -> Result<Self, NetlinkError> {
        let ipv6 = Ipv6::of(&link.name, desired.mtu);
        let places = places(netlink, made).await?;
        let networks = desired.networks();
        let mut tunnels = tunnels(netlink).await?;
        tunnels.push(link.index);
        let outside = [
            outside(netlink, &tunnels, false).await?,
            outside(netlink, &tunnels, true).await?,
        ];
        let connected: Vec<_> = outside.iter().flat_map(|it| it.connected.clone()).collect();
        let local = Local::of(&connected, &networks);
        let warnings = warnings(desired, ipv6, &local, &outside, &tunnels);

        let mut excluded = desired.excluded.clone();
        if desired.exclude_local {
            excluded.extend(&local.networks);
        }
        let mark = desired.fwmark.unwrap_or(0);
        let underlay = match desired.kill_switch {
            Some(_) => underlay(netlink, &link, desired, mark).await?,
            None => Vec::new(),
        };
        let router = match desired.kill_switch {
            Some(_) if desired.asks_router => netlink.default_gateway().await?,
            _ => None,
        };
        let mut prefixes = desired.addresses.iter().chain(&desired.allowed);
        let carries_ipv6 = ipv6 == Ipv6::On && prefixes.any(Prefix::is_ipv6);
        let mtu = match desired.mtu {
            Some(mtu) => mtu,
            None => {
                let mtu = fitting_mtu(netlink, &link, &desired.endpoints, mark).await?;
                usable(mtu.saturating_sub(desired.outer_headers), carries_ipv6)
            }
        };
        Ok(Self {
            mtu: limited(mtu, desired.mtu_at_most, carries_ipv6),
            nearer: nearer(desired, &networks, &outside),
            allowed: Allowed {
                excluded,
                local: local.networks,
                connected,
                streams: desired.streams.clone(),
                underlay,
                router: router.map(|(address, _)| address),
            },
            link,
            ipv6,
            places,
            warnings,
        })
    }
}

/// Returns the expected `Facts::warnings`, without an interface.
///
/// # Errors
/// If the kernel does not tell its routes.
pub async fn foresee(interface: &str, desired: &Desired) -> Result<Vec<String>, HostError> {
    let gathered = async {
        let netlink = &Netlink::open()?;
        let tunnels = tunnels(netlink).await?;
        let outside = [
            outside(netlink, &tunnels, false).await?,
            outside(netlink, &tunnels, true).await?,
        ];
        let connected: Vec<_> = outside.iter().flat_map(|it| it.connected.clone()).collect();
        let local = Local::of(&connected, &desired.networks());
        let ipv6 = Ipv6::of(interface, desired.mtu);
        Ok::<_, NetlinkError>(warnings(desired, ipv6, &local, &outside, &tunnels))
    };
    gathered.await.map_err(HostError::kernel("read", "routes"))
}

fn warnings(
    desired: &Desired,
    ipv6: Ipv6,
    local: &Local,
    outside: &[Outside; 2],
    tunnels: &[u32],
) -> Vec<String> {
    let mut warnings = ipv6.warnings(desired);
    if desired.follows_local() {
        warnings.extend(local.warnings(desired.wants_local()));
    }
    warnings.extend(half(desired, outside, tunnels));
    warnings
}

/// Networks for which longer routes of the host would prevail over those of a plain tunnel.
fn nearer(desired: &Desired, networks: &[Prefix], outside: &[Outside; 2]) -> Vec<Prefix> {
    if desired.kill_switch.is_some() || !desired.is_fenced() {
        return Vec::new();
    }
    let plain = [false, true].map(|ipv6| !desired.has_default(ipv6));
    let routed = outside.iter().flat_map(|it| &it.routed);
    let routed = routed.filter(|to| plain[usize::from(to.is_ipv6())]);
    let is_within = |to: &&Prefix| {
        let mut around = networks.iter();
        around.any(|own| own != *to && own.contains(to)) && !networks.contains(to)
    };
    routed.filter(is_within).copied().collect()
}

async fn places(netlink: &Netlink, made: &[&What]) -> Result<[Place; 2], NetlinkError> {
    let of = |ipv6: bool| {
        let rules = made.iter().filter_map(move |what| match what {
            What::Rule(rule) if rule.ipv6 == ipv6 => Some(*rule),
            _ => None,
        });
        rules.collect::<Vec<_>>()
    };
    Ok([
        rule::place(netlink, false, &of(false)).await?,
        rule::place(netlink, true, &of(true)).await?,
    ])
}

/// Returns a computed MTU, or the least one that the kernel takes for these packets.
fn usable(mtu: u32, carries_ipv6: bool) -> u32 {
    let least = if carries_ipv6 {
        smallest_mtu(true)
    } else {
        LEAST_MTU
    };
    mtu.max(least)
}

/// The MTU, no larger than `at_most`, which in turn does not go below the smallest one.
fn limited(mtu: u32, at_most: Option<u32>, carries_ipv6: bool) -> u32 {
    let at_most = at_most.map(|most| most.max(smallest_mtu(carries_ipv6)));
    at_most.map_or(mtu, |most| mtu.min(most))
}

/// Computes the MTU as wg-quick(8) does, but to fit all endpoints: the route's MTU or else its device's, less the
/// overhead; that of the default route if no endpoint has a route.
async fn fitting_mtu(
    netlink: &Netlink,
    link: &Link,
    endpoints: &[IpAddr],
    mark: u32,
) -> Result<u32, NetlinkError> {
    let mut smallest = None::<u32>;
    for endpoint in endpoints {
        let Some((device, mtu)) = path(netlink, *endpoint, mark).await else {
            continue;
        };
        if device == link.index {
            continue;
        }
        let mtu = match mtu {
            Some(mtu) => Some(mtu),
            None => device_mtu(netlink, device).await?,
        };
        smallest = smallest.into_iter().chain(mtu).min();
    }
    if smallest.is_none() {
        for device in default_devices(netlink, false).await? {
            if device != link.index {
                let mtu = device_mtu(netlink, device).await?;
                smallest = smallest.into_iter().chain(mtu).min();
            }
        }
    }
    Ok(smallest.unwrap_or(ETHERNET_MTU).saturating_sub(OVERHEAD))
}

async fn device_mtu(netlink: &Netlink, index: u32) -> Result<Option<u32>, NetlinkError> {
    let link = netlink.link_by_index(index).await?;
    Ok(link.map(|link| link.mtu))
}

/// The devices that lead to the endpoints, and those of default routes; without any, all that may lead out later.
async fn underlay(
    netlink: &Netlink,
    link: &Link,
    desired: &Desired,
    mark: u32,
) -> Result<Vec<String>, NetlinkError> {
    let mut indices = Vec::new();
    for endpoint in &desired.endpoints {
        indices.extend(
            path(netlink, *endpoint, mark)
                .await
                .map(|(device, _)| device),
        );
    }
    for ipv6 in [false, true] {
        indices.extend(default_devices(netlink, ipv6).await?);
    }
    indices.sort_unstable();
    indices.dedup();
    let mut names = Vec::new();
    for index in indices.into_iter().filter(|index| *index != link.index) {
        let link = netlink.link_by_index(index).await?;
        names.extend(link.map(|link| link.name).filter(|name| name != "lo"));
    }
    if names.is_empty() {
        names = links_out(netlink, &link.name).await?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computed_mtu_is_one_that_the_kernel_takes() {
        for (mtu, carries_ipv6, expected) in [
            (1420, true, 1420),
            (420, true, 1280),
            (420, false, 420),
            (68, false, 68),
            (67, false, 68),
            (0, false, 68),
        ] {
            assert_eq!(usable(mtu, carries_ipv6), expected, "{mtu}, {carries_ipv6}");
        }
    }

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
