//! Prepares a change of configuration on a thread of its own, which may take its time.
//!
//! Each new peer costs one or two Diffie-Hellman operations. The [`Planner`] mirrors the keys and peers
//! of the node, does that work, and makes a [`Plan`] that the node can apply within one tick.

use std::collections::{HashMap, HashSet};

use crate::{
    config::{DeviceUpdate, PeerUpdate, PresharedKey, PrivateKey, PublicKey},
    noise::{Identity, Noise},
    peer::FORMER_KEYS,
    wipe::leave_no_trace,
};

/// The bits of a session index that belong to the peer.
const INDEX_BITS: u32 = 24;

/// Indices reserved for one peer: those of its present and of all its former keys.
const REMEMBERED_INDICES: usize = 1 + FORMER_KEYS;

/// A change that [`crate::Node::apply`] applies as a whole.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) identity: Option<Option<Box<Identity>>>,
    pub(crate) replace_peers: bool,
    /// New state for present peers, after a new private key or a step of the wall clock.
    pub(crate) rekeyed: Vec<(PublicKey, Box<Noise>)>,
    pub(crate) peers: Vec<PeerPlan>,
}

/// One peer's change, with the cryptographic state that it needs.
#[derive(Debug)]
pub(crate) struct PeerPlan {
    /// The change, without the preshared key.
    pub(crate) update: PeerUpdate,
    pub(crate) preshared_key: Option<Option<Box<PresharedKey>>>,
    pub(crate) noise: Option<Box<Noise>>,
}

/// Prepares plans; mirrors the keys and peers of the node.
#[derive(Debug, Default)]
pub struct Planner {
    private_key: Option<PrivateKey>,
    peers: HashMap<PublicKey, Mirror>,
    /// The indices in use.
    indices: HashSet<u32>,
}

#[derive(Debug, Default)]
struct Mirror {
    preshared_key: Option<Box<PresharedKey>>,
    /// Every index given to the peer: the node may still use those of former keys.
    indices: Vec<u32>,
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
            self.indices.clear();
        }
        let identity = match update.private_key {
            Some(key) if key != self.private_key => {
                self.private_key = key;
                let own = self.identity();
                plan.rekeyed = self.rekey_all(own.as_ref());
                plan.identity = Some(self.identity().map(Box::new));
                own
            }
            _ => self.identity(),
        };
        plan.peers = update
            .peers
            .into_iter()
            .filter_map(|peer| self.plan_peer(peer, identity.as_ref()))
            .collect();
        plan
    }

    /// Makes new handshakes of all peers carry the present wall-clock time; sessions go on.
    ///
    /// boringtun reads that clock only once, when it creates its state for a peer.
    pub fn restamp(&mut self) -> Plan {
        let rekeyed = leave_no_trace(|| self.rekey_all(self.identity().as_ref()));
        Plan {
            rekeyed,
            ..Plan::default()
        }
    }

    fn identity(&self) -> Option<Identity> {
        self.private_key.as_ref().map(Identity::new)
    }

    fn rekey_all(&mut self, identity: Option<&Identity>) -> Vec<(PublicKey, Box<Noise>)> {
        if let Some(identity) = identity {
            self.forget(&identity.public_key());
        }
        let keys: Vec<_> = self.peers.keys().copied().collect();
        keys.into_iter()
            .filter_map(|key| Some((key, self.noise(key, identity?)?)))
            .collect()
    }

    /// `None` if the update concerns neither a present nor a new peer.
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
            self.forget(&key);
            return Some(PeerPlan {
                update,
                preshared_key: None,
                noise: None,
            });
        }
        let is_new = !self.peers.contains_key(&key);
        if is_new && update.update_only {
            return None;
        }
        let mirror = self.peers.entry(key).or_default();
        let mut needs_noise = is_new;
        let preshared_key = update.preshared_key.clone().map(|key| key.map(Box::new));
        // Unlike `take`, this wipes the key in place.
        update.preshared_key = None;
        if let Some(preshared_key) = &preshared_key {
            needs_noise |= mirror.preshared_key != *preshared_key;
            mirror.preshared_key.clone_from(preshared_key);
        }
        let noise = identity
            .filter(|_| needs_noise)
            .and_then(|identity| self.noise(key, identity));
        Some(PeerPlan {
            update,
            preshared_key,
            noise,
        })
    }

    /// `None` if `key` is of low order and can authenticate nobody.
    fn noise(&mut self, key: PublicKey, identity: &Identity) -> Option<Box<Noise>> {
        let index = self.unused_index();
        let mirror = self.peers.entry(key).or_default();
        mirror.indices.push(index);
        // The node keeps the oldest keys and the newest ones.
        if mirror.indices.len() > REMEMBERED_INDICES {
            self.indices.remove(&mirror.indices.remove(1));
        }
        self.indices.insert(index);
        // The leftovers of one peer's keys must not end up in the state of the next peer.
        leave_no_trace(|| Noise::new(identity, key, mirror.preshared_key.as_deref(), index))
    }

    fn unused_index(&self) -> u32 {
        loop {
            let index = rand::random_range(0..1 << INDEX_BITS);
            if !self.indices.contains(&index) {
                return index;
            }
        }
    }

    fn forget(&mut self, key: &PublicKey) {
        for index in self.peers.remove(key).unwrap_or_default().indices {
            self.indices.remove(&index);
        }
    }
}
