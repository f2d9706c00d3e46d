//! Peers whose handshakes and moves are reported, so that another endpoint can be tried, and people can be told.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
};

use convoy_types::{DirectPath, RelayAddress, WhyNotDirect};

use crate::config::PublicKey;

/// News of a followed peer, since the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerEvent {
    /// The peer.
    pub peer: PublicKey,
    /// Outcome of the latest handshake so far, if there was one.
    pub handshake: Option<Outcome>,
    /// Its endpoint, if it has got another one or has roamed.
    pub moved_to: Option<SocketAddr>,
    /// The path to a peer that is met through a hub, or why there is none, if that has changed.
    pub path: Option<Result<DirectPath, WhyNotDirect>>,
    /// The TURN server that carries its data, or `Some(None)` if data goes directly, if that has changed.
    pub relay: Option<Option<RelayAddress>>,
}

/// Outcome of a handshake so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is complete.
    Answered,
    /// An initiation got no answer for 5 s, or the peer called again as if it had not heard the answer to its last one.
    Unanswered,
    /// Nor did the last attempt: no other follows by itself.
    GivenUp,
}

impl PeerEvent {
    /// News of a handshake alone.
    #[must_use]
    pub fn handshake(peer: PublicKey, outcome: Outcome) -> Self {
        Self {
            peer,
            handshake: Some(outcome),
            moved_to: None,
            path: None,
            relay: None,
        }
    }

    /// Returns whether a handshake is complete.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.handshake == Some(Outcome::Answered)
    }
}

/// The followed peers, each with one event at most: its latest.
///
/// Collecting it from a large set of keys takes a while: do that on another thread than the node's.
#[derive(Debug, Default)]
pub struct Followed {
    /// For each peer its event, until that is polled.
    latest: HashMap<PublicKey, Option<PeerEvent>>,
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
    pub(crate) fn record(&mut self, peer: PublicKey, outcome: Outcome) {
        if let Some(event) = self.event_of(peer) {
            event.handshake = Some(outcome);
        }
    }

    /// Call when the peer has this endpoint from now on.
    pub(crate) fn record_move(&mut self, peer: PublicKey, to: Option<SocketAddr>) {
        if let Some(event) = self.event_of(peer) {
            event.moved_to = to;
        }
    }

    /// Call when data to the peer takes this path from now on.
    pub(crate) fn record_path(&mut self, peer: PublicKey, path: Result<DirectPath, WhyNotDirect>) {
        if let Some(event) = self.event_of(peer) {
            event.path = Some(path);
        }
    }

    /// Call when data to the peer takes this TURN server from now on, or none.
    pub(crate) fn record_relay(&mut self, peer: PublicKey, server: Option<RelayAddress>) {
        if let Some(event) = self.event_of(peer) {
            event.relay = Some(server);
        }
    }

    /// The event of the peer that waits, or a new one; `None` if it is not followed.
    fn event_of(&mut self, peer: PublicKey) -> Option<&mut PeerEvent> {
        if self.latest.is_empty() {
            return None;
        }
        let latest = self.latest.get_mut(&peer)?;
        if latest.is_none() {
            self.queue.push_back(peer);
        }
        Some(latest.get_or_insert(PeerEvent {
            peer,
            handshake: None,
            moved_to: None,
            path: None,
            relay: None,
        }))
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<PeerEvent> {
        let peer = self.queue.pop_front()?;
        self.latest.get_mut(&peer)?.take()
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
            followed.record(A, Outcome::Answered);
            followed.record(B, Outcome::Answered);
            followed.record(A, Outcome::Unanswered);
            followed.record(PublicKey([3; 32]), Outcome::Unanswered);
        }
        assert_eq!(followed.queue.capacity(), capacity, "nothing is allocated");
        let event = |peer, outcome| Some(PeerEvent::handshake(peer, outcome));
        assert_eq!(followed.pop(), event(A, Outcome::Unanswered));
        assert_eq!(followed.pop(), event(B, Outcome::Answered));
        assert_eq!(followed.pop(), None);
        followed.record(A, Outcome::Answered);
        assert_eq!(followed.pop(), event(A, Outcome::Answered));
    }

    #[test]
    fn a_move_and_a_handshake_are_one_event() {
        let mut followed: Followed = [A].into_iter().collect();
        let [first, last] = [1, 2].map(|n| Some(SocketAddr::from(([192, 0, 2, n], 51820))));
        followed.record_move(A, first);
        followed.record(A, Outcome::GivenUp);
        followed.record_move(A, last);
        let event = followed.pop().unwrap();
        assert_eq!(
            (event.handshake, event.moved_to),
            (Some(Outcome::GivenUp), last)
        );
        followed.record_move(A, first);
        let event = followed.pop().unwrap();
        assert_eq!((event.handshake, event.moved_to), (None, first));
        assert_eq!(followed.pop(), None);
    }
}
