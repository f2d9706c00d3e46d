//! Local addresses by rtnetlink.

use std::{future::ready, io, net::IpAddr};

use convoy_netlink::{Address, LOCAL_TABLE, Netlink, Notice, Notices, Route, RouteType, Topic};

use super::known::Known;
use convoy_types::Prefix;

/// A subscription to changes of addresses, and of routes, as some of these make addresses local.
pub(super) struct Changes(Notices);

/// A connection to rtnetlink.
pub(super) struct Tables(Netlink);

impl Changes {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self(Notices::subscribe(&[
            Topic::Addresses,
            Topic::Routes,
        ])?))
    }

    /// Waits until local addresses may have changed; takes all notices that have come until then.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        while !self.concerns_addresses().await? {}
        loop {
            tokio::select! {
                biased;
                another = self.concerns_addresses() => drop(another?),
                () = ready(()) => return Ok(()),
            }
        }
    }

    /// Waits for a notice; whether it is, or may be, about a local address.
    async fn concerns_addresses(&mut self) -> io::Result<bool> {
        let (notice, _) = self.0.next().await?;
        Ok(match notice {
            Notice::Route { route, .. } => route.table == LOCAL_TABLE,
            _ => true,
        })
    }
}

impl Tables {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(Netlink::open()?))
    }

    pub(super) async fn read(&self) -> io::Result<Known> {
        let mut known = Known::default();
        for address in self.0.addresses(None).await? {
            known.addresses.extend(addresses_of(&address));
        }
        for ipv6 in [false, true] {
            let routes = self.0.routes(ipv6, Some(LOCAL_TABLE)).await?;
            known
                .networks
                .extend(routes.iter().filter_map(local_network));
        }
        known.settle();
        Ok(known)
    }
}

impl Known {
    /// Moves networks of a single address to where they are found fast.
    fn settle(&mut self) {
        let addresses = &mut self.addresses;
        self.networks.retain(|network| match network.is_host() {
            true => {
                addresses.insert(network.address());
                false
            }
            false => true,
        });
    }
}

/// The addresses at which an interface answers, or broadcasts. Of a tunnel, the other end's is not among them.
fn addresses_of(address: &Address) -> impl Iterator<Item = IpAddr> {
    let broadcast = address.broadcast.map(IpAddr::from);
    [address.prefix.address()].into_iter().chain(broadcast)
}

/// Returns the network that a route makes local, or broadcast.
fn local_network(route: &Route) -> Option<Prefix> {
    let is_local = matches!(
        route.kind,
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast
    );
    let network = route.to.network().unmapped();
    is_local.then_some(network)
}
