//! The state of one peer.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use convoy_datagram::{Datagram, Destination, MAX_UDP_PAYLOAD};

use crate::{
    config::{PeerSnapshot, PresharedKey, PublicKey},
    counters::DropReason,
    held::Held,
    noise::{CONTROL_BYTES, Handshaken, Identity, Noise},
    prefixes::Prefixes,
    return_route::{Asked, ReturnRoute},
    sessions::Sessions,
    timers::Timers,
};

/// A peer's endpoint, and the local address to send to it from (the sticky source).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) source: Option<IpAddr>,
}

impl Endpoint {
    /// The endpoint to send answers to `datagram` to.
    pub(crate) fn of_sender(datagram: &Datagram<'_>) -> Self {
        Self {
            address: datagram.from,
            source: datagram.arrival.map(|arrival| arrival.address),
        }
    }

    /// The destination of a datagram with these ECN bits.
    pub(crate) fn destination(self, ecn: u8) -> Destination {
        Destination {
            to: self.address,
            source: self.source,
            ecn,
        }
    }
}

/// Former keys kept for one peer: preshared keys change more slowly than handshakes complete.
pub(crate) const FORMER_KEYS: usize = 4;

/// The least time between two initiations of one peer, as in the reference.
const BETWEEN_INITIATIONS: Duration = Duration::from_millis(20);

/// The cryptographic state and the sessions under one preshared key.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Boxed: ten kilobytes, never moved.
    pub(crate) noise: Box<Noise>,
    pub(crate) sessions: Sessions,
}

impl Keys {
    pub(crate) fn new(noise: Box<Noise>) -> Self {
        Self {
            noise,
            sessions: Sessions::default(),
        }
    }

    /// Keeps the next session out of the slot of the current one. Returns whether that began a
    /// handshake, whose initiation is in `buffer`.
    pub(crate) fn spare_current(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> bool {
        let is_in_the_way = self.sessions.is_current_slot(self.noise.next_index());
        is_in_the_way && self.noise.skip_index(buffer).is_some()
    }

    /// Call before handling an initiation: advances the clock that stamps its session, and keeps it
    /// out of the slot of the current one.
    ///
    /// Returns whether boringtun began a handshake meanwhile, whose initiation is in `buffer`.
    pub(crate) fn prepare_to_answer(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> bool {
        // While a response is awaited, the clock stands still: replays that advance it could end that
        // handshake.
        let is_begun = !self.noise.is_awaiting() && self.noise.advance_clock(buffer);
        self.follow_noise();
        self.spare_current(buffer) || is_begun
    }

    /// Follows boringtun, whose own timers forget all sessions 90 seconds into a handshake.
    pub(crate) fn follow_noise(&mut self) {
        if !self.noise.has_session() {
            self.sessions.forget_current();
        }
    }

    /// Makes `initiation`, and all before it, replays from now on.
    fn learn(&mut self, initiation: &[u8]) -> Result<(), DropReason> {
        let mut buffer = [0; CONTROL_BYTES];
        self.spare_current(&mut buffer);
        let handshaken = self.noise.handshake(initiation, &mut buffer)?;
        if let Handshaken::Respond { local, .. } = handshaken {
            self.sessions.forget(local);
        }
        Ok(())
    }

    /// Whether these keys can still carry or begin a session, or detect replays.
    fn is_of_use(&self) -> bool {
        let guards = self.noise.accepted().is_some();
        guards || !self.sessions.is_empty() || self.noise.is_awaiting()
    }

    fn can_send(&self, now: Duration) -> bool {
        self.sessions.current().is_some_and(|s| s.can_send(now))
    }
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) public_key: PublicKey,
    /// Boxed, so that no move leaves a copy behind.
    pub(crate) preshared_key: Option<Box<PresharedKey>>,
    /// `None` while the device has no private key.
    pub(crate) keys: Option<Keys>,
    /// Keys with former preshared keys, newest last: see [`Peer::change_keys`].
    pub(crate) former: Vec<Keys>,
    pub(crate) timers: Timers,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) return_route: ReturnRoute,
    pub(crate) held: VecDeque<Held>,
    /// The longest datagram that the path takes, in bytes, and until when that is remembered.
    pub(crate) path_limit: Option<(usize, Duration)>,
    pub(crate) allowed_ips: Prefixes,
    /// The peer's place in the order of adding.
    pub(crate) added: u64,
    pub(crate) last_handshake: Option<Duration>,
    /// The wall-clock time shown for the last handshake: stays even if the clock is set.
    shown_handshake: Option<(Duration, SystemTime)>,
    /// When the peer's last initiation was accepted.
    pub(crate) last_answer: Option<Duration>,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
}

impl Peer {
    pub(crate) fn new(public_key: PublicKey, added: u64) -> Self {
        Self {
            public_key,
            preshared_key: None,
            keys: None,
            former: Vec::new(),
            timers: Timers::default(),
            endpoint: None,
            return_route: ReturnRoute::default(),
            held: VecDeque::new(),
            path_limit: None,
            allowed_ips: Prefixes::default(),
            added,
            last_handshake: None,
            shown_handshake: None,
            last_answer: None,
            rx_bytes: 0,
            tx_bytes: 0,
            rx_packets: 0,
            tx_packets: 0,
        }
    }

    /// Whether an initiation was accepted less than 20 ms ago.
    pub(crate) fn is_answered_just_now(&self, now: Duration) -> bool {
        let least = |at: Duration| now.saturating_sub(at) < BETWEEN_INITIATIONS;
        self.last_answer.is_some_and(least)
    }

    /// Shows an initiation to the former keys, which refuse it if they have seen it: it must not be
    /// replayed to the present ones.
    pub(crate) fn show_to_former(&mut self, initiation: &[u8]) -> Result<(), DropReason> {
        let mut former = self.former.iter_mut();
        former.try_for_each(|keys| keys.learn(initiation))
    }

    /// The last accepted initiation, from the oldest keys, which have seen them all.
    fn last_accepted(&self) -> Option<[u8; CONTROL_BYTES]> {
        let oldest = self.former.first().or(self.keys.as_ref());
        oldest.and_then(|keys| keys.noise.accepted())
    }

    /// Whether there is a session to send in.
    pub(crate) fn can_send(&self, now: Duration) -> bool {
        let mut all = self.keys.iter().chain(&self.former);
        all.any(|keys| keys.can_send(now))
    }

    /// The longest datagram that the path to the peer takes, in bytes.
    pub(crate) fn max_datagram(&mut self, now: Duration) -> usize {
        self.path_limit = self.path_limit.filter(|(_, until)| now < *until);
        self.path_limit.map_or(MAX_UDP_PAYLOAD, |(limit, _)| limit)
    }

    /// The newest keys that have a session to send in.
    pub(crate) fn sending_keys(&mut self, now: Duration) -> Option<&mut Keys> {
        let newest_first = self.keys.iter_mut().chain(self.former.iter_mut().rev());
        newest_first.into_iter().find(|keys| keys.can_send(now))
    }

    /// The keys that own the session index `local`.
    pub(crate) fn keys_of(&mut self, local: u32) -> Option<&mut Keys> {
        let mut all = self.keys.iter_mut().chain(&mut self.former);
        all.find(|keys| keys.noise.index() == local >> 8)
    }

    /// Uses `noise`, with another preshared key, from the next handshake on.
    ///
    /// Until the new keys have their first session, the former ones carry their sessions and guard
    /// against replayed initiations. Returns the keys that are no longer of use.
    pub(crate) fn change_keys(&mut self, noise: Box<Noise>) -> Vec<Keys> {
        let replaced = self.keys.replace(Keys::new(noise));
        if !replaced.as_ref().is_some_and(Keys::is_of_use) {
            return Vec::from_iter(replaced);
        }
        self.former.extend(replaced);
        // Keep the oldest: it has seen every initiation that any of them has seen.
        let is_too_many = self.former.len() > FORMER_KEYS;
        is_too_many
            .then(|| self.former.remove(1))
            .into_iter()
            .collect()
    }

    /// Call once both sides have a session under the present keys. Shows them the last initiation that
    /// the former keys accepted, and returns the former keys.
    pub(crate) fn retire_former(&mut self) -> Vec<Keys> {
        let accepted = self.last_accepted();
        if let (Some(keys), Some(initiation)) = (&mut self.keys, accepted)
            && keys.noise.accepted().is_none()
        {
            // The former keys have accepted it, so this fails only if it is known already.
            let _ = keys.learn(&initiation);
        }
        std::mem::take(&mut self.former)
    }

    /// Ends all sessions: none sends or receives any more.
    pub(crate) fn clear_sessions(&mut self) {
        let all = self.keys.iter_mut().chain(&mut self.former);
        all.for_each(|keys| keys.sessions.clear());
    }

    /// Erases all sessions with their keys, but not the last accepted initiation. Returns the former
    /// keys.
    pub(crate) fn erase_sessions(&mut self, identity: &Identity) -> Vec<Keys> {
        let accepted = self.last_accepted();
        if let Some(keys) = &mut self.keys
            && let Some(renewed) = keys.noise.renewed(identity, accepted.as_ref())
        {
            *keys = Keys::new(renewed);
        }
        std::mem::take(&mut self.former)
    }

    /// Records an authenticated message. Returns whether its arrival raises a question about the route
    /// back; `routes` is the number of route changes so far.
    pub(crate) fn record_received(
        &mut self,
        datagram: &Datagram<'_>,
        routes: u32,
        now: Duration,
    ) -> bool {
        self.rx_bytes += datagram.bytes.len() as u64;
        self.timers.authenticated_received(now);
        let to = datagram.from;
        let is_elsewhere = self.endpoint.is_none_or(|e| e.address != to);
        let asked = datagram.arrival.map(|arrival| Asked {
            to,
            arrival,
            routes,
        });
        if !is_elsewhere && self.return_route.asked == asked {
            return false;
        }
        if is_elsewhere {
            self.path_limit = None;
        }
        let is_asked = asked.is_some_and(|asked| self.return_route.ask(asked, now));
        self.endpoint = Some(Endpoint {
            address: to,
            source: asked.filter(|_| is_asked).map(|a| a.arrival.address),
        });
        is_asked
    }

    /// Lets the kernel choose the source address until the peer sends again.
    pub(crate) fn forget_source(&mut self) {
        self.return_route.asked = None;
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.source = None;
        }
    }

    /// `now` and `wall` are the same moment by both clocks.
    pub(crate) fn snapshot(&mut self, now: Duration, wall: SystemTime) -> PeerSnapshot {
        let shown = self.shown_handshake.take();
        self.shown_handshake = self.last_handshake.map(|at| match shown {
            Some(shown) if shown.0 == at => shown,
            _ => (at, wall - now.saturating_sub(at)),
        });
        PeerSnapshot {
            public_key: self.public_key,
            preshared_key: self.preshared_key.as_deref().cloned(),
            endpoint: self.endpoint.map(|e| e.address),
            last_handshake: self.shown_handshake.map(|(_, wall)| wall),
            persistent_keepalive: self.timers.persistent_interval(),
            rx_bytes: self.rx_bytes,
            tx_bytes: self.tx_bytes,
            rx_packets: self.rx_packets,
            tx_packets: self.tx_packets,
            allowed_ips: self.allowed_ips.in_order(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{common::Pair, config::PresharedKey, counters::DropReason};

    #[test]
    fn former_keys_go_with_the_next_session_and_initiations_they_have_seen_stay_replays() {
        let mut pair = Pair::new();
        pair.a_sends(b"hello");
        let initiation = pair.a.take_wire(pair.now);
        let from = pair.a.address;
        pair.b.receive(&initiation[0], from, pair.now);
        pair.settle();
        let (mut to_a, mut to_b) = (pair.a.as_peer(), pair.b.as_peer());
        for peer in [&mut to_a, &mut to_b] {
            peer.preshared_key = Some(Some(PresharedKey([5; 32])));
        }
        pair.a.set_peer(to_b, pair.now);
        pair.b.set_peer(to_a, pair.now);
        assert_eq!(pair.b.node.peers[0].former.len(), 1);

        // The session so far is too old, and the other side begins the next one.
        pair.pass(Duration::from_secs(181));
        pair.b_sends(b"in the next session");
        pair.settle();
        assert!(pair.b.node.peers[0].former.is_empty());
        pair.b.receive(&initiation[0], from, pair.now);
        assert_eq!(pair.b.drops(DropReason::InboundBadHandshake), 1);
        pair.a_sends(b"both");
        pair.b_sends(b"ways");
        pair.settle();
        assert_eq!((pair.a.delivered.len(), pair.b.delivered.len()), (2, 2));
    }

    #[test]
    fn keys_that_were_never_used_are_not_kept() {
        let mut pair = Pair::new();
        let mut peer = pair.b.as_peer();
        peer.preshared_key = Some(Some(PresharedKey([5; 32])));
        pair.a.set_peer(peer, pair.now);
        assert!(pair.a.node.peers[0].former.is_empty());
    }
}
