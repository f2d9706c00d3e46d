//! The outer tunnel of one that goes through another: its configuration, and what changes from one to the next.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use convoy_proto::{
    Plan, Planner,
    config::{DeviceUpdate, PeerUpdate, PrivateKey, PublicKey},
};
use rand::RngExt as _;

/// All of the outer tunnel's configuration.
#[derive(Clone, Debug)]
pub struct Outer {
    /// Its private key.
    pub private_key: PrivateKey,
    /// Addresses of this end inside it: the first of each family is the source of the inner tunnel's datagrams.
    pub addresses: Vec<IpAddr>,
    /// Its peers, each with everything that is configured.
    pub peers: Vec<PeerUpdate>,
    /// Peers that leave where they have roamed, even if their configured endpoints are the same.
    pub moved: Vec<PublicKey>,
}

/// A change of the outer tunnel.
#[derive(Debug)]
pub(crate) struct OuterPlan {
    pub(crate) plan: Plan,
    pub(crate) addresses: Vec<IpAddr>,
    /// The port from which the inner tunnel sends.
    pub(crate) port: u16,
}

/// Makes plans, by what the last one has set.
#[derive(Debug, Default)]
pub(crate) struct OuterPlanner {
    planner: Planner,
    /// The endpoints that were configured: a peer that has moved keeps its own until another is.
    peers: HashMap<PublicKey, Option<SocketAddr>>,
    port: u16,
}

impl OuterPlanner {
    /// Returns whether an update adds a peer that the outer tunnel has, or changes it.
    pub(crate) fn is_concerned(&self, update: &DeviceUpdate) -> bool {
        let mut added = update
            .peers
            .iter()
            .filter(|it| !it.remove && !it.update_only);
        added.any(|it| self.peers.contains_key(&it.public_key))
    }

    pub(crate) fn plan(&mut self, outer: Outer) -> OuterPlan {
        let addresses = outer.addresses.clone();
        let update = self.update(outer);
        if self.port == 0 {
            // The ports from which a host sends (RFC 6335, section 6).
            self.port = rand::rng().random_range(49_152..=u16::MAX);
        }
        OuterPlan {
            plan: self.planner.plan(update),
            addresses,
            port: self.port,
        }
    }

    /// Returns what is to be set, and notes the endpoints.
    fn update(&mut self, outer: Outer) -> DeviceUpdate {
        let mut former = std::mem::take(&mut self.peers);
        let mut peers = Vec::new();
        for mut peer in outer.peers {
            let was = former.remove(&peer.public_key);
            self.peers.insert(peer.public_key, peer.endpoint);
            if was == Some(peer.endpoint) && !outer.moved.contains(&peer.public_key) {
                peer.endpoint = None;
            }
            peer.replace_allowed_ips = true;
            peers.push(peer);
        }
        let gone = former.into_keys().map(|key| PeerUpdate {
            remove: true,
            ..PeerUpdate::new(key)
        });
        DeviceUpdate {
            private_key: Some(Some(outer.private_key)),
            peers: gone.chain(peers).collect(),
            ..DeviceUpdate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_roams_stays_there_unless_it_is_moved() {
        let key = PublicKey([2; 32]);
        let outer = |moved: &[PublicKey]| {
            let mut peer = PeerUpdate::new(key);
            peer.endpoint = Some(([192, 0, 2, 1], 51_820).into());
            Outer {
                private_key: PrivateKey([1; 32]),
                addresses: Vec::new(),
                peers: vec![peer],
                moved: moved.to_vec(),
            }
        };
        let mut planner = OuterPlanner::default();
        let mut sets_endpoint = |moved: &[PublicKey]| {
            let update = planner.update(outer(moved));
            update.peers[0].endpoint.is_some()
        };
        assert!(sets_endpoint(&[]));
        assert!(!sets_endpoint(&[]));
        assert!(sets_endpoint(&[key]));
    }
}
