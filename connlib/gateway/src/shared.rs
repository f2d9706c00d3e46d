//! State that all flows of a gateway share.

use std::{net::IpAddr, sync::Arc, time::Duration};

use convoy_network::{
    Network,
    counters::{Counters, Refusal},
    relay::{Relay, Tenant},
    waiting::Waiting,
};
use tracing::debug;

use super::{
    admission::Admission,
    answer::Answers,
    connections::Connections,
    ends::Ends,
    flows::{Flows, Message},
    mapping::Mappings,
};

/// Time limit for an answer of a target, or of the network inside.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// State that all flows share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) relay: Arc<Relay>,
    /// By the peer's number; the last one is of all others.
    pub(super) tenants: Box<[Tenant]>,
    pub(super) answers: Answers,
    pub(super) outside: Arc<dyn Network>,
    pub(super) connections: Connections,
    /// Memory of SYNs that wait.
    pub(super) syns: Waiting,
    pub(super) flows_of_datagrams: Flows,
    pub(super) mappings: Mappings,
    /// Memory of datagrams that wait.
    pub(super) waiting: Waiting,
    pub(super) flows_of_echoes: Flows,
    pub(super) tcp: Counters,
    pub(super) udp: Counters,
    pub(super) icmp: Counters,
    pub(super) admission: Admission,
}

impl Shared {
    /// The share of a peer's connections in the relay's memory.
    pub(super) fn tenant(&self, peer: u32) -> &Tenant {
        &self.tenants[(peer as usize).min(self.tenants.len() - 1)]
    }

    /// Keeps what came out of the inlet until its flow takes it, given its bytes, hops and traffic class; counts it if
    /// too much waits.
    pub(super) fn keep(
        &self,
        (bytes, hops, class): (&[u8], u8, u8),
        peer: IpAddr,
        counters: &Counters,
    ) -> Option<Message> {
        // Without a number, it is refused next.
        let peer = self.admission.peers.of(peer).unwrap_or(u32::MAX);
        let kept = self.waiting.hold(peer, bytes, class);
        if kept.is_none() {
            counters.refuse(Refusal::TooMuchWaiting);
        }
        kept.map(|bytes| Message { bytes, hops })
    }
}

/// Logs a refusal, without the target.
pub(super) fn refused(counters: &Counters, ends: Ends, refusal: Refusal) {
    counters.refuse(refusal);
    debug!(peer = %ends.peer, reason = refusal.name(), "refused");
}
