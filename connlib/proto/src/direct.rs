//! The state of peers that are met through a hub. [`crate::meet`] says what they are.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use convoy_paths::{Agent, MAX_CANDIDATES, ProbeBudget};
use convoy_stun::Client as Stun;
use convoy_types::{Candidate, CandidateKind, DirectPeer, WhyNotDirect};

use crate::config::{Prefix, PublicKey};

/// Most candidates that routers forward.
const MAX_MAPPED: usize = 2;
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
    /// Addresses at which routers forward to this machine.
    pub(crate) mapped: Vec<SocketAddr>,
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
    pub(crate) reported: Option<Result<(SocketAddr, CandidateKind), WhyNotDirect>>,
}

impl Directs {
    /// The addresses at which this machine may be reached.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let hosts = self.hosts.iter().filter(|_| self.port != 0);
        let hosts = hosts.map(|ip| SocketAddr::new(*ip, self.port));
        let seen = self.stun.addresses().collect();
        in_order(hosts.collect(), self.mapped.clone(), seen)
    }
}

/// Names each address once, with the kind that lasts longest, and leaves out what exceeds [`MAX_CANDIDATES`].
fn in_order(
    mut hosts: Vec<SocketAddr>,
    mut mapped: Vec<SocketAddr>,
    mut seen: Vec<SocketAddr>,
) -> Vec<Candidate> {
    mapped.retain(|address| !hosts.contains(address));
    mapped.truncate(MAX_MAPPED);
    // Without a NAT, a server sees the host's own address.
    seen.retain(|address| !hosts.contains(address) && !mapped.contains(address));
    seen.truncate(MAX_REFLEXIVE);
    hosts.truncate(MAX_CANDIDATES - mapped.len() - seen.len());
    let kinds = [
        (CandidateKind::Host, hosts),
        (CandidateKind::Mapped, mapped),
        (CandidateKind::Reflexive, seen),
    ];
    let all = kinds.into_iter().flat_map(|(kind, addresses)| {
        let candidate = move |address| Candidate { kind, address };
        addresses.into_iter().map(candidate)
    });
    all.collect()
}

impl Direct {
    pub(crate) fn is_as(&self, peer: &DirectPeer) -> bool {
        self.hub_key == peer.hub && self.allowed_ips == peer.allowed_ips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_come_between_those_of_the_host_and_what_servers_saw() {
        let host = address("192.0.2.1:51820");
        let [mapped, other] = ["198.51.100.7:51820", "198.51.100.7:4"].map(address);
        let found = in_order(vec![host], vec![host, mapped], vec![mapped, host, other]);
        let expected = [
            (CandidateKind::Host, host),
            (CandidateKind::Mapped, mapped),
            (CandidateKind::Reflexive, other),
        ];
        let expected = expected.map(|(kind, address)| Candidate { kind, address });
        assert_eq!(found, expected);
    }

    #[test]
    fn many_addresses_of_the_host_leave_room_for_others() {
        let many = |first: u8| -> Vec<SocketAddr> {
            let all = (0..20).map(|it| SocketAddr::from(([first, 0, 2, it], 1)));
            all.collect()
        };
        let found = in_order(many(192), many(198), many(203));
        let count = |kind| found.iter().filter(|it| it.kind == kind).count();
        assert_eq!(found.len(), MAX_CANDIDATES);
        assert_eq!(count(CandidateKind::Mapped), MAX_MAPPED);
        assert_eq!(count(CandidateKind::Reflexive), MAX_REFLEXIVE);
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }
}
