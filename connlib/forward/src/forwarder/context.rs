//! State of listeners that their connections and flows share.

use std::{net::IpAddr, sync::Arc};

use convoy_network::{
    Network,
    counters::Counters,
    occupants::{Holder, Occupants},
    peers::Peers,
    relay::{Relay, Tenant},
    shares::Shares,
    waiting::Waiting,
};

use super::{clients::Clients, service::Service};
use crate::{
    access::Access,
    lookups::{Lookups, OfClient},
    socks::TargetCount,
};

/// State that all rules share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) relay: Arc<Relay>,
    /// Connections, of which each rule can count on some.
    pub(super) connections: Shares,
    pub(super) clients: Clients,
    pub(super) flows: Occupants,
    pub(super) most_flows: usize,
    pub(super) waiting: Waiting,
    pub(super) targets: TargetCount,
    pub(super) lookups: Lookups,
}

/// State that all connections and flows of a listener share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    /// The rule's number.
    pub(super) rule: u32,
    pub(super) service: Service,
    pub(super) access: Vec<Access>,
    pub(super) peers: Arc<Peers>,
    pub(super) counters: Arc<Counters>,
    pub(super) tenant: Tenant,
    /// The clients' network.
    pub(super) near: Arc<dyn Network>,
    /// The targets' network.
    pub(super) far: Arc<dyn Network>,
}

impl Context {
    /// The targets' network, as a client uses it.
    pub(super) fn far(&self, client: IpAddr) -> OfClient<'_> {
        OfClient {
            network: &self.far,
            lookups: &self.shared.lookups,
            client: self.holder_of_flows(client),
        }
    }

    /// The peer that an address belongs to, or else the address or its network.
    pub(super) fn holder(&self, address: IpAddr) -> Holder {
        self.of_peer_or_address(self.peers.of(address), address)
    }

    /// The holder of flows, whose oldest may have to give way to others of the holder: no peer behind which there are
    /// many hosts.
    pub(super) fn holder_of_flows(&self, address: IpAddr) -> Holder {
        self.of_peer_or_address(self.peers.of_part(address), address)
    }

    fn of_peer_or_address(&self, peer: Option<u32>, address: IpAddr) -> Holder {
        match peer {
            Some(peer) => Holder::of_peer(self.rule, peer),
            None => Holder::new(self.rule, address),
        }
    }
}
