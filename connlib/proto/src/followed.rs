//! Peers whose handshakes are reported, so that another endpoint can be tried.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use crate::{config::PublicKey, node::Node};

/// The outcome of a followed peer's handshake so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerEvent {
    /// The peer.
    pub peer: PublicKey,
    /// Whether a handshake completed. If not, an initiation got no answer for 5 s, or the last attempt was given
    /// up.
    pub answered: bool,
}

/// The followed peers, each with one event at most: its latest.
///
/// Collecting it from a large set of keys takes a while: do that on another thread than the node's.
#[derive(Debug, Default)]
pub struct Followed {
    /// For each peer whether its latest handshake was answered, until that is polled.
    latest: HashMap<PublicKey, Option<bool>>,
    /// Peers with an event, in the order in which it was first recorded.
    queue: VecDeque<PublicKey>,
}

impl FromIterator<PublicKey> for Followed {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(peers: I) -> Self {
        let latest: HashMap<_, _> = peers.into_iter().map(|peer| (peer, None)).collect();
        // The event loop need not allocate later.
        let queue = VecDeque::with_capacity(latest.len());
        Self { latest, queue }
    }
}

impl Followed {
    pub(crate) fn record(&mut self, peer: PublicKey, answered: bool) {
        if self.latest.is_empty() {
            return;
        }
        if let Some(latest) = self.latest.get_mut(&peer)
            && latest.replace(answered).is_none()
        {
            self.queue.push_back(peer);
        }
    }

    fn pop(&mut self) -> Option<PeerEvent> {
        let peer = self.queue.pop_front()?;
        let answered = self.latest.get_mut(&peer)?.take()?;
        Some(PeerEvent { peer, answered })
    }
}

impl Node {
    /// Reports the handshakes of these peers from now on, and of no others; they need not exist yet.
    ///
    /// Returns the former ones; drop them on another thread than the node's, as they may be many.
    pub fn follow(&mut self, peers: Followed) -> Followed {
        std::mem::replace(&mut self.followed, peers)
    }

    /// The next event of a followed peer. A later event of a peer replaces one that has not been polled.
    pub fn poll_handshake_event(&mut self) -> Option<PeerEvent> {
        self.followed.pop()
    }

    /// Whether [`Self::poll_handshake_event`] has an event.
    #[must_use]
    pub fn has_handshake_events(&self) -> bool {
        !self.followed.queue.is_empty()
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
        if !self.is_up || self.peers[id].endpoint.is_none() || self.peers[id].keys.is_none() {
            return;
        }
        if self.peers[id].timers.is_answer_late(now) {
            // The machine has slept. It would count as unanswered.
            self.stop_awaiting(id);
        }
        let peer = &mut self.peers[id];
        peer.path_limit = None;
        peer.timers.initiate_at(now);
        self.deadlines.arm(id, &mut peer.timers);
    }

    /// Records an event of a followed peer if the last initiation has had its time for an answer. Call it before
    /// another one is sent, and when none will be.
    pub(crate) fn record_unanswered(&mut self, id: usize, now: Duration) {
        let peer = &self.peers[id];
        if peer.initiation.is_some() && peer.timers.is_answer_late(now) {
            self.followed.record(peer.public_key, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);

    #[test]
    fn each_peer_has_one_event_which_is_its_latest() {
        let mut followed: Followed = [A, B, A].into_iter().collect();
        let capacity = followed.queue.capacity();
        for _ in 0..100 {
            followed.record(A, true);
            followed.record(B, true);
            followed.record(A, false);
            followed.record(PublicKey([3; 32]), false);
        }
        assert_eq!(followed.queue.capacity(), capacity, "nothing is allocated");
        let event = |peer, answered| Some(PeerEvent { peer, answered });
        assert_eq!(followed.pop(), event(A, false));
        assert_eq!(followed.pop(), event(B, true));
        assert_eq!(followed.pop(), None);
        followed.record(A, true);
        assert_eq!(followed.pop(), event(A, true));
    }
}
