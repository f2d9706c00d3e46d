//! Applies configuration changes that the [`crate::Planner`] has prepared.

use std::time::Duration;

use convoy_noise::{Identity, PeerKeys};

use crate::{
    config::{PeerUpdate, Prefix, PresharedKey, PublicKey},
    counters::DropReason,
    node::Node,
    peer::{Endpoint, Peer},
    plan::{PREFIXES, PeerPlan, Plan},
};

/// The cost of a slice, in changes of allowed IPs; and that of a change to a peer.
const SLICE: usize = PREFIXES;
const PEER: usize = SLICE / 64;

impl Node {
    /// Applies a whole change at once.
    pub fn apply(&mut self, mut plan: Plan, now: Duration) {
        while !self.apply_slice(&mut plan, now) {}
    }

    /// Applies the next part of a change. Returns whether nothing is left of it; drop the plan, which may
    /// be large, on another thread than the node's.
    pub fn apply_slice(&mut self, plan: &mut Plan, now: Duration) -> bool {
        if std::mem::take(&mut plan.replace_peers) {
            plan.leaving = self.by_key.keys().copied().collect();
        }
        let mut cost = 0;
        while cost < SLICE {
            let Some(step) = self.apply_step(plan, now) else {
                return true;
            };
            cost += step;
        }
        false
    }

    /// Applies the smallest part of a change; returns its cost, or `None` if nothing is left.
    fn apply_step(&mut self, plan: &mut Plan, now: Duration) -> Option<usize> {
        if let Some(key) = plan.leaving.last() {
            let taken = self.take_prefixes_of(key);
            if taken < PREFIXES {
                self.remove_peer(key, now);
                plan.leaving.pop();
            }
            return Some(PEER + taken);
        }
        if let Some(identity) = plan.identity.take() {
            // A peer that needs keys meanwhile must not get those of the former identity.
            self.identity = None;
            let all = || self.peers.iter().map(|(id, _)| id).collect();
            if let Some(id) = plan.former.get_or_insert_with(all).pop() {
                plan.identity = Some(identity);
                self.end_sessions(id);
                self.peers[id].keys = None;
            } else {
                // A device is not its own peer.
                let own = identity.as_deref().map(Identity::public_key);
                plan.leaving.extend(own);
                self.identity = identity;
            }
            return Some(PEER);
        }
        if let Some((key, keys)) = plan.keys.pop() {
            if let Some(&id) = self.by_key.get(&key) {
                self.set_keys(id, keys);
            }
            return Some(PEER);
        }
        let update = &plan.peers.as_slice().first()?.update;
        let mut taken = 0;
        if update.remove || update.replace_allowed_ips {
            taken = self.take_prefixes_of(&update.public_key);
        }
        let given = update.allowed_ips.len();
        if taken < PREFIXES
            && let Some(peer) = plan.peers.next()
        {
            self.apply_peer(peer, now);
            taken += given;
        }
        Some(PEER + taken)
    }

    fn set_keys(&mut self, id: usize, keys: Box<PeerKeys>) {
        let peer = &mut self.peers[id];
        peer.keys = Some(keys);
        peer.contact.forget_failures();
        peer.timers.allow_initiation();
    }

    /// Sets the preshared key for the next handshake; sessions continue.
    pub(crate) fn set_preshared_key(&mut self, id: usize, key: Option<Box<PresharedKey>>) {
        let peer = &mut self.peers[id];
        if peer.preshared_key != key {
            peer.preshared_key = key;
            peer.sessions.preshared_key_changed();
            peer.contact.forget_failures();
            peer.timers.allow_initiation();
        }
    }

    fn apply_peer(&mut self, plan: PeerPlan, now: Duration) {
        let PeerPlan {
            update,
            preshared_key,
            keys,
        } = plan;
        if update.remove {
            return self.remove_peer(&update.public_key, now);
        }
        let id = match self.by_key.get(&update.public_key) {
            Some(&id) => id,
            None => self.add_peer(update.public_key, now),
        };
        if let Some(keys) = keys {
            self.set_keys(id, keys);
        }
        if let Some(key) = preshared_key {
            self.set_preshared_key(id, key);
        }
        self.update_peer(id, update, now);
    }

    fn add_peer(&mut self, public_key: PublicKey, now: Duration) -> usize {
        let peer = Box::new(Peer::new(public_key, self.added));
        let id = self.peers.insert(peer);
        self.by_key.insert(public_key, id);
        self.by_age.insert(self.added, id);
        self.added += 1;
        self.peer_added(&public_key, id, now);
        id
    }

    fn update_peer(&mut self, id: usize, update: PeerUpdate, now: Duration) {
        let peer = &mut self.peers[id];
        let mut is_elsewhere = false;
        if let Some(address) = update.endpoint {
            let endpoint = Endpoint {
                address,
                source: None,
            };
            if peer.endpoint != Some(endpoint) {
                is_elsewhere = peer.address() != Some(address);
                self.by_address
                    .peer_moved(id, peer.address(), Some(address));
                peer.endpoint = Some(endpoint);
                peer.return_route.forget_way();
                peer.path_limit = None;
                if is_elsewhere {
                    peer.contact.forget_failures();
                    self.followed.record_move(peer.public_key, Some(address));
                }
                peer.timers.allow_initiation();
            }
        }
        if is_elsewhere {
            self.leave_relay(id, now);
        }
        for change in update.allowed_ips {
            if change.remove {
                self.take_prefix(id, change.network);
            } else {
                self.give_prefix(id, change.network);
            }
        }
        let peer = &mut self.peers[id];
        if let Some(seconds) = update.persistent_keepalive {
            peer.timers.set_persistent_keepalive(seconds, now);
            if !self.is_up {
                peer.timers.stop();
            }
            self.deadlines.arm(id, &mut peer.timers);
        }
        let is_in_progress = self.peers[id].initiation.is_some();
        // Packets held for lack of an endpoint or a key may proceed.
        if self.peers[id].can_send(now) {
            self.release_held(id);
        } else if !self.held.is_empty(id) {
            self.initiate(id, now, is_in_progress);
            return;
        }
        // The new endpoint need not wait until the former one has had its 5 s.
        if is_elsewhere && is_in_progress {
            self.initiate(id, now, true);
        }
    }

    /// Takes allowed IPs from the peer, if there is one, [`PREFIXES`] at most; returns their number.
    fn take_prefixes_of(&mut self, key: &PublicKey) -> usize {
        let Some(&id) = self.by_key.get(key) else {
            return 0;
        };
        let prefixes = std::iter::from_fn(|| self.peers[id].allowed_ips.pop());
        let taken = prefixes.take(PREFIXES);
        taken.map(|prefix| self.allowed_ips.remove(prefix)).count()
    }

    fn give_prefix(&mut self, id: usize, prefix: Prefix) {
        if let Some(former) = self.allowed_ips.insert(prefix, id) {
            self.peers[former].allowed_ips.remove(&prefix);
        }
        self.peers[id].allowed_ips.insert(prefix);
    }

    fn take_prefix(&mut self, id: usize, prefix: Prefix) {
        if self.peers[id].allowed_ips.remove(&prefix) {
            self.allowed_ips.remove(prefix);
        }
    }

    /// Removes a peer that has no allowed IPs left.
    fn remove_peer(&mut self, key: &PublicKey, now: Duration) {
        let Some(id) = self.by_key.remove(key) else {
            return;
        };
        self.peer_removed(key, now);
        self.drop_held(id, DropReason::OutboundPeerRemoved);
        self.end_sessions(id);
        let mut peer = self.peers.remove(id);
        self.deadlines.disarm(id, &mut peer.timers);
        self.by_age.remove(&peer.added);
        self.by_address.peer_moved(id, peer.address(), None);
        self.forget_relayed(id);
    }
}
