//! Sources of news about the host: rtnetlink, nftables, resolv.conf's directory, D-Bus.

mod directory;

use std::{future::pending, path::Path};

use convoy_netlink::{self as netlink, Multicast, nft_tables, route_messages};
use futures_util::StreamExt as _;
use rtnetlink::{
    MulticastGroup,
    packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkFlags},
    },
    sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};

use crate::{dns::Owners, error::HostError};

use directory::Directory;

const ROUTE_GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// `NFNLGRP_NFTABLES` of linux/netfilter/nfnetlink.h.
const NFTABLES_GROUP: u32 = 7;

/// News of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Something of ours may be missing.
    Ours,
    /// Our nftables tables may be missing.
    Firewall,
    /// A way to the endpoints may have changed.
    Underlay,
    /// systemd-resolved has started.
    ResolverStarted,
    /// The interface was deleted.
    Gone,
    /// The interface is in another network namespace.
    Moved,
}

/// Our objects, to tell our news from others'.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interest {
    /// The interface.
    pub(crate) index: u32,
    /// Our own routing tables.
    pub(crate) tables: Vec<u32>,
    /// Our nftables table.
    pub(crate) nftables: Option<String>,
}

/// All sources. Those that nothing depends on are closed.
pub(crate) struct Sources {
    routes: Multicast,
    nftables: Option<Multicast>,
    resolv_conf: Option<Directory>,
    owners: Option<Owners>,
    pub(crate) interest: Interest,
}

impl Sources {
    pub(crate) fn open() -> Result<Self, HostError> {
        let groups = ROUTE_GROUPS.map(|group| group as u32);
        let routes = Multicast::open(NETLINK_ROUTE, &groups);
        Ok(Self {
            routes: routes.map_err(HostError::kernel("watch", "rtnetlink"))?,
            nftables: None,
            resolv_conf: None,
            owners: None,
            interest: Interest::default(),
        })
    }

    /// Starts or stops watching nftables.
    pub(crate) fn watch_nftables(&mut self, wanted: bool) {
        if wanted == self.nftables.is_some() {
            return;
        }
        self.nftables = None;
        if wanted {
            match Multicast::open(NETLINK_NETFILTER, &[NFTABLES_GROUP]) {
                Ok(opened) => self.nftables = Some(opened),
                Err(error) => {
                    tracing::warn!(%error, "Cannot watch nftables: flushed rules stay away")
                }
            }
        }
    }

    /// Starts watching a file, or stops.
    pub(crate) fn watch_file(&mut self, path: Option<&Path>) {
        self.resolv_conf = path.and_then(|path| {
            Directory::watch(path)
                .inspect_err(|error| {
                    let path = path.display();
                    tracing::warn!(%path, %error, "Cannot watch the file: foreign changes stay");
                })
                .ok()
        });
    }

    /// Starts watching systemd-resolved, or stops.
    pub(crate) fn watch_resolver(&mut self, owners: Option<Owners>) {
        self.owners = owners;
    }

    /// Waits for news. May be cancelled: no news is lost.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            let interest = &self.interest;
            let news = tokio::select! {
                datagram = self.routes.next() => match datagram {
                    Some(datagram) => route_messages(&datagram)
                        .filter_map(|message| about(&message, interest))
                        .max_by_key(News::weight),
                    // The kernel dropped some.
                    None => Some(News::Ours),
                },
                datagram = next_of(self.nftables.as_mut()) => match datagram {
                    Some(datagram) => nft_tables(&datagram)
                        .any(|table| Some(table) == interest.nftables.as_deref())
                        .then_some(News::Firewall),
                    None => Some(News::Firewall),
                },
                () = changed(self.resolv_conf.as_mut()) => Some(News::Ours),
                () = started(self.owners.as_mut()) => Some(News::ResolverStarted),
            };
            if let Some(news) = news {
                return news;
            }
        }
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("interest", &self.interest)
            .finish_non_exhaustive()
    }
}

impl News {
    /// Orders news: the heaviest implies the others.
    fn weight(&self) -> u8 {
        match self {
            Self::Underlay => 0,
            Self::Ours | Self::Firewall => 1,
            Self::ResolverStarted => 2,
            Self::Moved | Self::Gone => 3,
        }
    }
}

async fn next_of(source: Option<&mut Multicast>) -> Option<Vec<u8>> {
    match source {
        Some(source) => source.next().await,
        None => pending().await,
    }
}

async fn changed(source: Option<&mut Directory>) {
    match source {
        Some(source) => source.changed().await,
        None => pending().await,
    }
}

async fn started(source: Option<&mut Owners>) {
    let started = match source {
        Some(source) => source.next().await,
        None => None,
    };
    // A bus that is gone has no more news.
    if started.is_none() {
        pending::<()>().await;
    }
}

fn about(message: &RouteNetlinkMessage, interest: &Interest) -> Option<News> {
    match message {
        RouteNetlinkMessage::DelLink(link) if link.header.index == interest.index => {
            let is_move = |a: &LinkAttribute| matches!(a, LinkAttribute::NewNetnsId(_));
            let is_moved = link.attributes.iter().any(is_move);
            Some(if is_moved { News::Moved } else { News::Gone })
        }
        RouteNetlinkMessage::NewLink(link) if link.header.index == interest.index => {
            Some(News::Ours)
        }
        RouteNetlinkMessage::NewLink(link) => {
            // Wireless drivers send these for every scan.
            let is_wireless = |a: &LinkAttribute| matches!(a, LinkAttribute::Wireless(_));
            let is_scan = link.attributes.iter().any(is_wireless);
            let is_loopback = link.header.flags.contains(LinkFlags::Loopback);
            (!is_scan && !is_loopback).then_some(News::Underlay)
        }
        RouteNetlinkMessage::DelLink(_) => Some(News::Underlay),
        RouteNetlinkMessage::DelAddress(address) if address.header.index == interest.index => {
            Some(News::Ours)
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            (address.header.index != interest.index).then_some(News::Underlay)
        }
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            let is_deleted = matches!(message, RouteNetlinkMessage::DelRoute(_));
            let is_ours = interest.tables.contains(&netlink::table_of(route))
                || netlink::leads_out_by(route) == Some(interest.index);
            match (is_ours, is_deleted) {
                (true, true) => Some(News::Ours),
                (true, false) => None,
                (false, _) => {
                    let is_near = route.header.destination_prefix_length == 0
                        || netlink::connected(route).is_some();
                    is_near.then_some(News::Underlay)
                }
            }
        }
        RouteNetlinkMessage::DelRule(_) => Some(News::Ours),
        _ => None,
    }
}
