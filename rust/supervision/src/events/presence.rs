//! Which peers are up, by their handshakes. Pure: time is a parameter.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use convoy_proto::{Outcome, config::PublicKey};

/// The age from which a session cannot be used (WireGuard paper §6.1).
const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);

/// All peers about which something is known.
#[derive(Debug, Default)]
pub(super) struct Presence(HashMap<PublicKey, Seen>);

/// Everything that is known of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) is_up: bool,
    /// When its latest handshake completed.
    pub(super) latest: Option<Instant>,
    pub(super) endpoint: Option<SocketAddr>,
}

/// A change of a peer's presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Up,
    Down,
    Moved { from: Option<SocketAddr> },
}

impl Presence {
    /// Replaces everything known.
    pub(super) fn set(&mut self, seen: impl IntoIterator<Item = (PublicKey, Seen)>) {
        self.0 = seen.into_iter().collect();
    }

    /// Call when all sessions have ended with the tunnel's process.
    pub(super) fn forget_sessions(&mut self) {
        for seen in self.0.values_mut() {
            (seen.is_up, seen.latest) = (false, None);
        }
    }

    /// Forgets the peers that are not in the configuration any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(&PublicKey) -> bool) {
        self.0.retain(|peer, _| is_there(peer));
    }

    pub(super) fn endpoint(&self, peer: &PublicKey) -> Option<SocketAddr> {
        self.0.get(peer)?.endpoint
    }

    /// Call when a handshake of the peer has an outcome.
    pub(super) fn handle_handshake(
        &mut self,
        peer: PublicKey,
        outcome: Outcome,
        now: Instant,
    ) -> Option<Change> {
        let seen = self.0.entry(peer).or_default();
        let was_up = seen.is_up;
        match outcome {
            Outcome::Answered => {
                (seen.is_up, seen.latest) = (true, Some(now));
                (!was_up).then_some(Change::Up)
            }
            Outcome::Unanswered => {
                let is_recent = |at| now.saturating_duration_since(at) < REJECT_AFTER_TIME;
                seen.is_up &= seen.latest.is_some_and(is_recent);
                (was_up && !seen.is_up).then_some(Change::Down)
            }
            Outcome::GivenUp => {
                seen.is_up = false;
                was_up.then_some(Change::Down)
            }
        }
    }

    /// Call when the peer has this endpoint.
    pub(super) fn handle_endpoint(
        &mut self,
        peer: PublicKey,
        endpoint: SocketAddr,
    ) -> Option<Change> {
        let seen = self.0.entry(peer).or_default();
        let from = seen.endpoint.replace(endpoint);
        (from != Some(endpoint)).then_some(Change::Moved { from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PublicKey = PublicKey([7; 32]);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_peer_is_up_from_its_first_answer_until_none_came_for_three_minutes() {
        let (mut presence, start) = (Presence::default(), Instant::now());
        let mut hear =
            |outcome, at: u32| presence.handle_handshake(PEER, outcome, start + at * SECOND);
        assert_eq!(hear(Outcome::Unanswered, 0), None, "it was not up");
        assert_eq!(hear(Outcome::Answered, 5), Some(Change::Up));
        assert_eq!(hear(Outcome::Answered, 125), None);
        assert_eq!(hear(Outcome::Unanswered, 250), None);
        assert_eq!(hear(Outcome::Unanswered, 304), None);
        assert_eq!(hear(Outcome::Unanswered, 305), Some(Change::Down));
        assert_eq!(hear(Outcome::Unanswered, 310), None);
        assert_eq!(hear(Outcome::GivenUp, 311), None);
        assert_eq!(hear(Outcome::Answered, 320), Some(Change::Up));
    }

    #[test]
    fn a_peer_is_down_once_its_handshake_was_given_up() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let mut hear = |outcome| presence.handle_handshake(PEER, outcome, now);
        assert_eq!(hear(Outcome::Answered), Some(Change::Up));
        assert_eq!(hear(Outcome::GivenUp), Some(Change::Down));
    }

    #[test]
    fn a_peer_that_was_up_before_anybody_asked_does_not_come_up() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let seen = Seen {
            is_up: true,
            latest: Some(now),
            endpoint: None,
        };
        presence.set([(PEER, seen)]);
        assert_eq!(
            presence.handle_handshake(PEER, Outcome::Answered, now),
            None
        );
        presence.forget_sessions();
        let again = presence.handle_handshake(PEER, Outcome::Answered, now);
        assert_eq!(again, Some(Change::Up));
        presence.retain(|_| false);
        let after_removal = presence.handle_handshake(PEER, Outcome::Answered, now);
        assert_eq!(after_removal, Some(Change::Up));
    }

    #[test]
    fn only_another_endpoint_is_a_move() {
        let mut presence = Presence::default();
        let [a, b] = [1, 2].map(|n| SocketAddr::from(([192, 0, 2, n], 51820)));
        let mut at = |endpoint| presence.handle_endpoint(PEER, endpoint);
        assert_eq!(at(a), Some(Change::Moved { from: None }));
        assert_eq!(at(a), None);
        assert_eq!(at(b), Some(Change::Moved { from: Some(a) }));
        assert_eq!(presence.endpoint(&PEER), Some(b));
    }
}
