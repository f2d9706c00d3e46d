//! The state of peers that are met through a hub. [`crate::meet`] says what they are.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use convoy_paths::{Agent, MAX_CANDIDATES, ProbeBudget};
use convoy_stun::Client as Stun;
use convoy_types::{Candidate, CandidateKind, DirectPeer, WhyNotDirect};

use crate::config::{Prefix, PublicKey};

/// Most candidates that STUN servers have told.
const MAX_REFLEXIVE: usize = 4;

/// The peers of a node that are met through hubs.
#[derive(Debug, Default)]
pub(crate) struct Directs {
    pub(crate) by_key: BTreeMap<PublicKey, usize>,
    /// This machine's addresses inside the tunnel.
    pub(crate) own: Vec<IpAddr>,
    /// This machine's addresses outside of the tunnel.
    pub(crate) hosts: Vec<IpAddr>,
    /// The port of the UDP sockets.
    pub(crate) port: u16,
    pub(crate) budget: ProbeBudget,
    pub(crate) stun: Stun,
}

/// The part of a peer that ordinary peers lack.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) hub_key: PublicKey,
    /// The hub's id, while it is a peer.
    pub(crate) hub: Option<usize>,
    /// The peer's address inside the tunnel.
    pub(crate) address: IpAddr,
    pub(crate) allowed_ips: Vec<Prefix>,
    pub(crate) agent: Agent,
    pub(crate) packets_by_hub: u64,
    /// The path that was reported last.
    pub(crate) reported: Option<Result<SocketAddr, WhyNotDirect>>,
}

impl Directs {
    /// The addresses at which this machine may be reached.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let of = |kind, address| Candidate { kind, address };
        let hosts = self.hosts.iter().filter(|_| self.port != 0);
        let hosts = hosts.map(|ip| SocketAddr::new(*ip, self.port));
        let hosts: Vec<_> = hosts.collect();
        let mut seen: Vec<_> = self.stun.addresses().collect();
        // Without a NAT, a server sees the host's own address.
        seen.retain(|address| !hosts.contains(address));
        seen.truncate(MAX_REFLEXIVE);
        let hosts = hosts.iter().take(MAX_CANDIDATES - seen.len());
        let hosts = hosts.map(|address| of(CandidateKind::Host, *address));
        let seen = seen.iter();
        let seen = seen.map(|address| of(CandidateKind::Reflexive, *address));
        hosts.chain(seen).collect()
    }
}

impl Direct {
    pub(crate) fn is_as(&self, peer: &DirectPeer) -> bool {
        self.hub_key == peer.hub && self.allowed_ips == peer.allowed_ips
    }
}
