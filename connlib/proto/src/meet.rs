//! Peers that are met through a hub, and the direct paths to them.
//!
//! ```text
//!   A ══ session with the hub ══ hub ══ session with the hub ══ B     data, until there is a direct path
//!   A ── handshakes, candidates ─────────────────────────────── B     in UDP inside these sessions (`by_hub`)
//!   A ════════════ session with B, on a direct path ═════════════ B   probes, then data
//!   A ═══ TURN server ═══ the same session, where NATs allow no other ═ B
//! ```
//! Such a peer is a [`Peer`] like any other, but for three things. It is in no UAPI request or answer. It has an endpoint
//! only while a direct path is up, which [`convoy_paths::Agent`] chooses: it never roams. Its prefixes are the hub's as
//! well: packets for them go to the hub while there is no endpoint, and the hub may always send from them.

mod agent;
mod by_hub;
mod relay;

use std::time::Duration;

use convoy_noise::PeerKeys;
use convoy_paths::Event;
use convoy_types::{DirectPath, DirectPeer, DirectStatus, MAX_DIRECT_PEERS, WhyNotDirect};

use crate::{
    allowed_ips::Overlaid,
    config::{self, Prefix, PublicKey},
    counters::DropReason,
    direct::Direct,
    node::Node,
    peer::{Endpoint, Peer},
    randomness::Randomness,
    relays::Relayed,
};

impl Node {
    /// Sets the peers that are met through hubs, instead of the former ones. A peer that stays keeps its session and its
    /// path. Those that are ordinary peers as well are left out, and those beyond [`MAX_DIRECT_PEERS`].
    pub fn set_directs(&mut self, directs: &config::Directs, now: Duration) {
        let wanted = &directs.peers[..directs.peers.len().min(MAX_DIRECT_PEERS)];
        let stays = |(key, id): (&PublicKey, &usize)| {
            let direct = self.peers[*id].direct.as_deref();
            let mut same = wanted.iter().filter(|it| it.public_key == *key);
            same.any(|it| direct.is_some_and(|direct| direct.is_as(it)))
        };
        let all = self.directs.by_key.iter();
        let leaving: Vec<_> = all.filter(|it| !stays(*it)).map(|(key, _)| *key).collect();
        for key in leaving {
            self.say_leave(&key, now);
            self.remove_direct(&key);
        }
        self.directs.own.clone_from(&directs.own);
        self.directs.mapped.clone_from(&directs.mapped);
        if self.directs.hosts != directs.hosts {
            self.directs.hosts.clone_from(&directs.hosts);
            self.network_changed(now);
        }
        self.directs.stun.set_servers(&directs.stun, now);
        for peer in wanted {
            self.set_direct(peer, now);
        }
        self.overlay_prefixes();
        self.tell_candidates(now);
        self.arm_agents(now);
    }

    /// Sets the port of the UDP sockets, which candidates of this machine name; 0 if there are none.
    pub fn set_port(&mut self, port: u16, now: Duration) {
        if self.directs.port != port {
            self.directs.port = port;
            self.tell_candidates(now);
        }
    }

    /// The state of the peers that are met through hubs.
    pub(crate) fn direct_statuses(&self, now: Duration) -> Vec<DirectStatus> {
        let peers = self.directs.by_key.values().map(|id| &self.peers[*id]);
        peers.filter_map(|peer| peer.direct_status(now)).collect()
    }

    /// Returns the id of a peer that is met through a hub.
    pub(crate) fn direct_id(&self, key: &PublicKey) -> Option<usize> {
        self.directs.by_key.get(key).copied()
    }

    /// The ids of all peers that are met through hubs.
    pub(crate) fn direct_ids(&self) -> Vec<usize> {
        self.directs.by_key.values().copied().collect()
    }

    /// Call when an ordinary peer has been added, whose id is `id`.
    pub(crate) fn peer_added(&mut self, key: &PublicKey, id: usize, now: Duration) {
        if self.directs.by_key.is_empty() {
            return;
        }
        // An ordinary peer has its own prefixes and endpoint.
        self.remove_direct(key);
        self.set_hub(key, Some(id), now);
    }

    /// Call when an ordinary peer is removed.
    pub(crate) fn peer_removed(&mut self, key: &PublicKey, now: Duration) {
        if !self.directs.by_key.is_empty() {
            self.set_hub(key, None, now);
        }
    }

    /// Ends the path of a peer that is met through a hub, or the meeting with it: call it when its sessions have ended.
    pub(crate) fn reset_direct(&mut self, id: usize, now: Duration) {
        if self.peers[id].direct.is_none() {
            return;
        }
        self.change_path(id, Event::Hub(WhyNotDirect::Idle), now);
        let mut agent = self.new_agent(now);
        agent.set_local(&self.directs.candidates(), now);
        if let Some(direct) = &mut self.peers[id].direct {
            direct.agent = agent;
        }
        self.arm_agents(now);
    }

    /// Computes the keys of a peer that is met through a hub, if the device has a private key.
    #[cold]
    pub(crate) fn find_direct_keys(&mut self, id: usize) {
        let peer = &mut self.peers[id];
        if peer.direct.is_some()
            && peer.keys.is_none()
            && let Some(identity) = self.identity.as_deref()
        {
            peer.keys = PeerKeys::new(identity, peer.public_key);
        }
    }

    fn set_direct(&mut self, wanted: &DirectPeer, now: Duration) {
        let key = wanted.public_key;
        let is_own = self
            .identity
            .as_deref()
            .is_some_and(|it| it.public_key() == key);
        if is_own || self.by_key.contains_key(&key) {
            return;
        }
        let Some(address) = wanted.allowed_ips.first().map(Prefix::address) else {
            return;
        };
        let id = self.direct_id(&key).unwrap_or_else(|| {
            let agent = self.new_agent(now);
            let mut peer = Box::new(Peer::new(key, 0));
            peer.direct = Some(Box::new(Direct {
                hub_key: wanted.hub,
                hub: self.by_key.get(&wanted.hub).copied(),
                address,
                allowed_ips: wanted.allowed_ips.clone(),
                agent,
                packets_by_hub: 0,
                reported: None,
            }));
            let id = self.peers.insert(peer);
            self.directs.by_key.insert(key, id);
            id
        });
        self.set_preshared_key(id, wanted.preshared_key.clone().map(Box::new));
    }

    fn remove_direct(&mut self, key: &PublicKey) {
        let Some(id) = self.directs.by_key.remove(key) else {
            return;
        };
        self.drop_held(id, DropReason::OutboundPeerRemoved);
        self.end_sessions(id);
        let mut peer = self.peers.remove(id);
        self.deadlines.disarm(id, &mut peer.timers);
        self.by_address.peer_moved(id, peer.address(), None);
        self.overlay_prefixes();
    }

    fn set_hub(&mut self, key: &PublicKey, hub: Option<usize>, now: Duration) {
        for id in self.direct_ids() {
            if let Some(direct) = self.peers[id].direct.as_deref_mut()
                && direct.hub_key == *key
            {
                direct.hub = hub;
                if hub.is_none() {
                    self.drop_held(id, DropReason::OutboundPeerRemoved);
                    self.end_sessions(id);
                    self.peers[id].timers.stop();
                    self.reset_direct(id, now);
                }
            }
        }
        self.overlay_prefixes();
    }

    fn overlay_prefixes(&mut self) {
        let peers = self
            .directs
            .by_key
            .values()
            .map(|id| (*id, &self.peers[*id]));
        let prefixes = peers.flat_map(|(id, peer)| {
            let direct = peer.direct.as_deref();
            let direct = direct.and_then(|direct| Some((direct, direct.hub?)));
            direct.into_iter().flat_map(move |(direct, hub)| {
                let overlaid = Overlaid {
                    below: hub,
                    owner: id,
                };
                direct.allowed_ips.iter().map(move |it| (*it, overlaid))
            })
        });
        self.allowed_ips.set_overlay(prefixes);
    }
}

impl Peer {
    fn direct_status(&self, now: Duration) -> Option<DirectStatus> {
        let direct = self.direct.as_deref()?;
        let agent = &direct.agent;
        let path = agent.path_pair().map(|pair| DirectPath {
            remote: pair.candidate.address,
            kind: pair.kind(),
            round_trip: pair.round_trip,
        });
        Some(DirectStatus {
            public_key: self.public_key,
            address: direct.address,
            hub: direct.hub_key,
            path: path.ok_or(agent.why_not_direct().unwrap_or(WhyNotDirect::Idle)),
            hub_round_trip: agent.hub_round_trip,
            last_handshake: self.contact.since_latest(now),
            rx_bytes: self.rx_bytes,
            tx_bytes: self.tx_bytes,
            packets_by_hub: direct.packets_by_hub,
            probes_sent: agent.probes_sent,
            probes_answered: agent.probes_answered,
        })
    }

    /// Sets the endpoint of a path, and the relay that carries data to it, if one does.
    fn set_path(&mut self, endpoint: Option<Endpoint>, relayed: Option<Relayed>) {
        (self.endpoint, self.relayed) = (endpoint, relayed);
        self.path_limit = None;
        self.timers.allow_initiation();
    }
}

/// A seed that distinguishes this start from earlier ones; without randomness, no handshake works either.
fn seed(randomness: &mut Randomness) -> u64 {
    randomness.number().unwrap_or_default()
}
