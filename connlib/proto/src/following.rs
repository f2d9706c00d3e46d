//! Handshakes that are reported, and those that are asked for.

use std::time::Duration;

use crate::{
    config::PublicKey,
    followed::{Followed, Outcome, PeerEvent},
    node::Node,
};

impl Node {
    /// Reports the handshakes and moves of these peers from now on, and of no others; they need not exist yet.
    ///
    /// Returns the former ones; drop them on another thread than the node's, as they may be many.
    pub fn follow(&mut self, peers: Followed) -> Followed {
        std::mem::replace(&mut self.followed, peers)
    }

    /// Returns the next event of a followed peer. A later event of a peer replaces one that has not been polled.
    pub fn poll_handshake_event(&mut self) -> Option<PeerEvent> {
        self.followed.pop()
    }

    /// Returns whether [`Self::poll_handshake_event`] has an event.
    #[must_use]
    pub fn has_handshake_events(&self) -> bool {
        self.followed.has_events()
    }

    /// Begins a new handshake with the peer at the next [`Self::handle_timeout`], from any source address, even
    /// if one is in progress or has just been completed. Does nothing while the link is down, and for a peer
    /// that is unknown or has no endpoint.
    ///
    /// Call it when the network has changed.
    pub fn handshake_now(&mut self, peer: &PublicKey, now: Duration) {
        let Some(&id) = self.by_key.get(peer) else {
            return;
        };
        if self.peers[id].relayed.is_some() {
            self.renew_relays(now);
        }
        if !self.is_up || self.peers[id].endpoint.is_none() || self.peers[id].keys.is_none() {
            return;
        }
        if self.peers[id].timers.is_answer_late(now) {
            // The machine has slept. It would count as unanswered.
            self.stop_awaiting(id);
        }
        let peer = &mut self.peers[id];
        peer.path_limit = None;
        peer.leave_source();
        peer.timers.initiate_at(now);
        self.deadlines.arm(id, &mut peer.timers);
    }

    /// Counts the last initiation as unanswered if it has had its time for an answer, which is an event of a
    /// followed peer. Call it before another one is sent, and when none will be.
    pub(crate) fn record_unanswered(&mut self, id: usize, now: Duration) {
        let peer = &mut self.peers[id];
        if peer.initiation.is_some() && peer.timers.is_answer_late(now) {
            peer.contact.was_unanswered();
            self.followed.record(peer.public_key, Outcome::Unanswered);
        }
    }
}
