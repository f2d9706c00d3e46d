//! Links, rules and routes of this host, as far as the checks need them.

use std::{io, net::IpAddr};

use convoy_host::Prefix;
use futures_util::{Stream, StreamExt as _};
use rtnetlink::{
    Error, Handle, IpVersion,
    packet_route::{
        AddressFamily,
        link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteType},
        rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
    },
};
use tokio::task::JoinHandle;

pub(super) const MAIN_TABLE: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// A connection to rtnetlink.
pub(super) struct Netlink {
    handle: Handle,
    connection: JoinHandle<()>,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// `wireguard`, `tun`, `vxlan` and so on; empty for hardware.
    pub(super) kind: String,
    pub(super) is_up: bool,
    /// In bytes.
    pub(super) mtu: u32,
    /// The length of its queue in packets.
    pub(super) queue: u32,
}

/// A policy rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) ipv6: bool,
    pub(super) priority: u32,
    /// 0 if it leads to none.
    pub(super) table: u32,
    /// Packets with this mark, or without it if the rule is inverted.
    pub(super) mark: Option<u32>,
    pub(super) is_inverted: bool,
    /// Whether it finds specific routes only (`suppress_prefixlength`).
    pub(super) is_suppressing: bool,
}

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
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        Ok(Self { handle, connection })
    }

    pub(super) async fn links(&self) -> io::Result<Vec<Link>> {
        let found = collect(self.handle.link().get().execute()).await?;
        Ok(found.iter().map(link).collect())
    }

    /// Reads the rules of both families, in the order in which the kernel takes them.
    pub(super) async fn rules(&self) -> io::Result<Vec<Rule>> {
        let mut rules = Vec::new();
        for (ipv6, version) in [(false, IpVersion::V4), (true, IpVersion::V6)] {
            // A kernel without IPv6 has none.
            let found = collect(self.handle.rule().get(version).execute()).await;
            let found = found.unwrap_or_default();
            rules.extend(found.iter().map(|message| rule(message, ipv6)));
        }
        Ok(rules)
    }

    /// The routes of all tables that lead out by a device.
    pub(super) async fn routes(&self) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for ipv6 in [false, true] {
            let mut filter = RouteMessage::default();
            filter.header.address_family = family(ipv6);
            let found = collect(self.handle.route().get(filter).execute()).await;
            let found = found.unwrap_or_default();
            routes.extend(found.iter().filter_map(|message| route(message, ipv6)));
        }
        Ok(routes)
    }

    /// How a datagram with `mark` leaves; `None` if there is no route.
    pub(super) async fn way(&self, to: IpAddr, mark: u32) -> Option<Way> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to.is_ipv6());
        message.header.destination_prefix_length = if to.is_ipv6() { 128 } else { 32 };
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Mark(mark),
        ];
        let found = collect(self.handle.route().get(message).execute()).await;
        found.ok()?.first().and_then(way)
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

async fn collect<T>(answers: impl Stream<Item = Result<T, Error>>) -> io::Result<Vec<T>> {
    let mut answers = Box::pin(answers);
    let mut found = Vec::new();
    while let Some(answer) = answers.next().await {
        found.push(answer.map_err(io::Error::other)?);
    }
    Ok(found)
}

fn link(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        is_up: message.header.flags.contains(LinkFlags::Up),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::TxQueueLen(length) => link.queue = *length,
            LinkAttribute::LinkInfo(infos) => {
                let kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
                link.kind = kind.unwrap_or_default();
            }
            _ => {}
        }
    }
    link
}

fn rule(message: &RuleMessage, ipv6: bool) -> Rule {
    let mut rule = Rule {
        ipv6,
        table: message.header.table.into(),
        is_inverted: message.header.flags.contains(RuleFlags::Invert),
        ..Rule::default()
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
            // The kernel tells -1 for none.
            RuleAttribute::SuppressPrefixLen(length) => rule.is_suppressing = *length != u32::MAX,
            _ => {}
        }
    }
    if message.header.action != RuleAction::ToTable {
        rule.table = 0;
    }
    rule
}

fn route(message: &RouteMessage, ipv6: bool) -> Option<Route> {
    let mut table = message.header.table.into();
    let (mut device, mut to) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => to = Some(IpAddr::from(*v4)),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => to = Some(IpAddr::from(*v6)),
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Oif(index) => device = Some(*index),
            _ => {}
        }
    }
    let device = device.filter(|_| message.header.kind == RouteType::Unicast)?;
    let length = message.header.destination_prefix_length;
    Some(Route {
        ipv6,
        table,
        to: to.and_then(|to| Prefix::new(to, length).ok()),
        length,
        device,
    })
}

fn way(message: &RouteMessage) -> Option<Way> {
    let device = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let mtu = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
            _ => None,
        }),
        _ => None,
    });
    let device = device.filter(|_| message.header.kind != RouteType::Unreachable)?;
    Some(Way { device, mtu })
}

fn family(ipv6: bool) -> AddressFamily {
    match ipv6 {
        true => AddressFamily::Inet6,
        false => AddressFamily::Inet,
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
            let rules = netlink.rules().await.unwrap();
            let to_main = |rule: &&Rule| !rule.ipv6 && rule.table == MAIN_TABLE;
            let rule = rules.iter().find(to_main).unwrap();
            assert_eq!((rule.mark, rule.is_suppressing), (None, false));
            let way = netlink.way([127, 0, 0, 1].into(), 0).await.unwrap();
            assert_eq!(way.device, 1);
        });
    }
}
