//! State of listeners that their connections and flows share.

use std::sync::Arc;

use super::{clients::Clients, service::Service};
use crate::{
    access::Access,
    counters::Counters,
    network::Network,
    occupants::Occupants,
    relay::{Relay, Tenant},
    shares::Shares,
    waiting::Waiting,
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
}

/// State that all connections and flows of a listener share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    /// The rule's number.
    pub(super) rule: u32,
    pub(super) service: Service,
    pub(super) access: Vec<Access>,
    pub(super) counters: Arc<Counters>,
    pub(super) tenant: Tenant,
    /// The clients' network.
    pub(super) near: Arc<dyn Network>,
    /// The targets' network.
    pub(super) far: Arc<dyn Network>,
}
