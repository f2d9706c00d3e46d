//! Prepares configuration changes on another thread than the node's.
//!
//! Each new peer costs a Diffie-Hellman operation, and a new private key costs one for each peer. The
//! [`Planner`] mirrors the private key and the peers of the node, does that work, and makes a [`Plan`]
//! that the node can apply in slices, each within one tick.

use std::collections::HashSet;

use convoy_noise::{Identity, PeerKeys, leave_no_trace};

use crate::config::{DeviceUpdate, PeerUpdate, PresharedKey, PrivateKey, PublicKey};

/// Changes of allowed IPs in one [`PeerPlan`]; further ones have a plan of their own.
pub(crate) const PREFIXES: usize = 256;

/// A change that [`crate::Node::apply`] applies as a whole, and [`crate::Node::apply_slice`] in slices.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) replace_peers: bool,
    /// Peers that are yet to be removed.
    pub(crate) leaving: Vec<PublicKey>,
    pub(crate) identity: Option<Option<Box<Identity>>>,
    /// Peers whose keys under the former private key are yet to be wiped, once they are known.
    pub(crate) former: Option<Vec<usize>>,
    /// New keys for existing peers, if the private key changes.
    pub(crate) keys: Vec<(PublicKey, Box<PeerKeys>)>,
    pub(crate) peers: std::vec::IntoIter<PeerPlan>,
}

/// One peer's change, with the keys that a new peer needs.
#[derive(Debug)]
pub(crate) struct PeerPlan {
    /// The change, without the preshared key.
    pub(crate) update: PeerUpdate,
    pub(crate) preshared_key: Option<Option<Box<PresharedKey>>>,
    pub(crate) keys: Option<Box<PeerKeys>>,
}

impl PeerPlan {
    /// Itself and, after it, plans for allowed IPs that would make it too long for a slice.
    fn split(mut self) -> Vec<Self> {
        let key = self.update.public_key;
        let first = self.update.allowed_ips.len().min(PREFIXES);
        let further = self.update.allowed_ips.split_off(first);
        let further = further.chunks(PREFIXES).map(|prefixes| Self {
            update: PeerUpdate {
                allowed_ips: prefixes.to_vec(),
                ..PeerUpdate::new(key)
            },
            preshared_key: None,
            keys: None,
        });
        let further: Vec<_> = further.collect();
        std::iter::once(self).chain(further).collect()
    }
}

/// Prepares plans; mirrors the private key and the peers of the node.
#[derive(Debug, Default)]
pub struct Planner {
    private_key: Option<PrivateKey>,
    peers: HashSet<PublicKey>,
}

impl Planner {
    /// Prepares `update`. Plans must be applied in the order in which they were made.
    pub fn plan(&mut self, update: DeviceUpdate) -> Plan {
        leave_no_trace(|| self.plan_update(update))
    }

    fn plan_update(&mut self, update: DeviceUpdate) -> Plan {
        let mut plan = Plan {
            replace_peers: update.replace_peers,
            ..Plan::default()
        };
        if update.replace_peers {
            self.peers.clear();
        }
        let identity = match update.private_key {
            Some(key) if key != self.private_key => {
                self.private_key = key;
                let own = self.identity();
                plan.keys = self.keys_of_all(own.as_ref());
                plan.identity = Some(self.identity().map(Box::new));
                own
            }
            _ => self.identity(),
        };
        let peers = update.peers.into_iter();
        let peers = peers.filter_map(|peer| self.plan_peer(peer, identity.as_ref()));
        let peers: Vec<_> = peers.flat_map(PeerPlan::split).collect();
        plan.peers = peers.into_iter();
        plan
    }

    fn identity(&self) -> Option<Identity> {
        self.private_key.as_ref().map(Identity::new)
    }

    fn keys_of_all(&mut self, identity: Option<&Identity>) -> Vec<(PublicKey, Box<PeerKeys>)> {
        let Some(identity) = identity else {
            return Vec::new();
        };
        self.peers.remove(&identity.public_key());
        let peers = self.peers.iter();
        peers
            .filter_map(|&peer| Some((peer, keys(identity, peer)?)))
            .collect()
    }

    /// Prepares the change of one peer; `None` if it concerns neither an existing nor a new one.
    fn plan_peer(
        &mut self,
        mut update: PeerUpdate,
        identity: Option<&Identity>,
    ) -> Option<PeerPlan> {
        let key = update.public_key;
        if identity.is_some_and(|own| own.public_key() == key) {
            return None;
        }
        if update.remove {
            self.peers.remove(&key);
            return Some(PeerPlan {
                update,
                preshared_key: None,
                keys: None,
            });
        }
        if update.update_only && !self.peers.contains(&key) {
            return None;
        }
        let preshared_key = update.preshared_key.clone().map(|key| key.map(Box::new));
        for change in &mut update.allowed_ips {
            change.network = change.network.network();
        }
        // Unlike `take`, this wipes the key in place.
        update.preshared_key = None;
        let is_new = self.peers.insert(key);
        let identity = identity.filter(|_| is_new);
        Some(PeerPlan {
            update,
            preshared_key,
            keys: identity.and_then(|identity| keys(identity, key)),
        })
    }
}

/// The keys for a peer; `None` if its public key is of low order, which authenticates nobody.
fn keys(identity: &Identity, peer: PublicKey) -> Option<Box<PeerKeys>> {
    // Traces of one peer's keys on the stack must not get into the next peer's state.
    leave_no_trace(|| PeerKeys::new(identity, peer))
}
