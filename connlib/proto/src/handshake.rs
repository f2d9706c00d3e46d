//! Handshakes: begins and answers them, and takes new sessions into use.

use std::time::Duration;

use convoy_noise::{Claim, Initiation, Screened};
use convoy_types::Datagram;

use crate::{
    counters::DropReason,
    followed::Outcome,
    messages::{INITIATION, RESPONSE, index_at},
    node::Node,
    peer::Endpoint,
    relays::RelayId,
    timers::jitter,
};

/// Responses to one initiation that are read even under load: the right one, after some of its copies or
/// forgeries of it.
const UNLIMITED_RESPONSES: u32 = 3;

/// The way by which a handshake message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the network.
    Wire,
    /// By the hub, from the tunnel address of this peer.
    Hub(usize),
    /// Through a TURN server.
    Relay(RelayId),
}

impl Way {
    /// Returns whether a message of the peer `id` may come this way.
    fn is_of(self, id: usize) -> bool {
        match self {
            Self::Wire | Self::Relay(_) => true,
            Self::Hub(peer) => peer == id,
        }
    }
}

impl Node {
    /// Sends an initiation to the peer. If the last one, or the last answer to the peer's, is less than
    /// Rekey-Timeout old, schedules it for later.
    pub(crate) fn initiate(&mut self, id: usize, now: Duration, is_retry: bool) {
        self.check_source(id, now);
        let stamp = self.stamp(now);
        if self.peers[id].keys.is_none() {
            self.find_direct_keys(id);
        }
        let peer = &mut self.peers[id];
        let endpoint = peer.endpoint;
        let Some(keys) = peer.keys.as_deref().filter(|_| peer.is_reachable()) else {
            return;
        };
        if !is_retry {
            peer.timers.begin_attempts();
        }
        if !self.is_up {
            return;
        }
        if !peer.timers.may_initiate(now) {
            // An answer that was just sent to the peer's own initiation may get lost: try again later.
            peer.timers.initiate_later();
            return self.deadlines.arm(id, &mut peer.timers);
        }
        let is_taken = |index| self.by_index.contains_key(&index);
        let Some(local) = self.randomness.index(is_taken) else {
            return;
        };
        let mut message = [0; INITIATION];
        let ephemeral = || self.randomness.key();
        let Some(initiation) = Initiation::write(keys, local, stamp, ephemeral, &mut message)
        else {
            return;
        };
        peer.cookies.sign(&keys.macs, &mut message, now);
        let _span = tracing::debug_span!("peer", peer = %peer.public_key).entered();
        tracing::debug!(endpoint = ?peer.address(), "Sending handshake initiation");
        peer.tx_bytes += message.len() as u64;
        self.record_unanswered(id, now);
        let peer = &mut self.peers[id];
        let unanswered = peer.timers.unanswered();
        peer.timers.initiation_sent(now, jitter());
        self.deadlines.arm(id, &mut peer.timers);
        // Only the response to the last initiation is accepted, as in the reference.
        self.stop_awaiting(id);
        self.peers[id].initiation = Some(initiation);
        self.by_index.insert(local, id);
        if self.relays.is_some() {
            return self.push_initiation(id, &message, unanswered, now);
        }
        self.push_message(id, endpoint, &message, now);
    }

    /// Handles an initiation, a response or a cookie reply; returns the reason if it is dropped.
    pub(crate) fn handle_handshake(
        &mut self,
        datagram: Datagram<'_>,
        way: Way,
        now: Duration,
    ) -> Result<(), DropReason> {
        let is_awaited = self.is_awaited(datagram.bytes)?;
        let identity = self.identity.as_mut().ok_or(DropReason::InboundNoKey)?;
        let from = datagram.from.ip();
        let limiter = (!is_awaited).then_some(&mut self.handshake_limiter);
        match identity.screen(from, datagram.bytes, limiter, now)? {
            Screened::Initiation(key) => {
                let id = self.by_key.get(&key).copied();
                let id = id.or_else(|| self.direct_id(&key));
                let id = id.filter(|id| way.is_of(*id));
                let id = id.ok_or(DropReason::InboundUnknownPeer)?;
                self.handle_initiation(id, datagram, way, now)
            }
            Screened::Response { receiver } => self.handle_response(receiver, datagram, way, now),
            Screened::CookieReply { receiver } => self.handle_cookie(receiver, datagram, way, now),
            Screened::AskForCookie(reply) => {
                match way {
                    Way::Wire => self.push_cookie(Endpoint::of_sender(&datagram), &reply),
                    Way::Hub(id) => self.send_by_hub(id, &reply, now),
                    Way::Relay(relay) => self.answer_by_relay(relay, datagram.from, &reply, now),
                }
                Err(DropReason::InboundUnderLoad)
            }
        }
    }

    /// Returns whether the message is one of the first responses to an initiation of ours: load is no reason to
    /// refuse these, as an attacker who is not on the path cannot guess the index.
    fn is_awaited(&mut self, message: &[u8]) -> Result<bool, DropReason> {
        if message.len() != RESPONSE || message[0] != 2 {
            return Ok(false);
        }
        let unknown = DropReason::InboundUnknownSession;
        let receiver = index_at(message, 8);
        let id = self.by_index.get(&receiver).ok_or(unknown)?;
        let initiation = self.peers[*id].initiation.as_mut();
        let initiation = initiation.filter(|i| i.local == receiver).ok_or(unknown)?;
        initiation.responses += 1;
        Ok(initiation.responses <= UNLIMITED_RESPONSES)
    }

    /// Answers the peer's initiation and offers it a session.
    fn handle_initiation(
        &mut self,
        id: usize,
        datagram: Datagram<'_>,
        way: Way,
        now: Duration,
    ) -> Result<(), DropReason> {
        if self.peers[id].keys.is_none() {
            self.find_direct_keys(id);
        }
        let bad = DropReason::InboundBadHandshake;
        let peer = &mut self.peers[id];
        if peer.is_answered_just_now(now) {
            return Err(DropReason::InboundTooSoon);
        }
        let keys = peer.keys.as_deref().ok_or(DropReason::InboundNoKey)?;
        let claim = Claim::read(keys, datagram.bytes, || self.randomness.key());
        let claim = claim.ok_or(bad)?;
        if claim.stamp <= peer.greatest_stamp {
            return Err(bad);
        }
        peer.greatest_stamp = claim.stamp;
        let is_taken = |index| self.by_index.contains_key(&index);
        let local = self.randomness.index(is_taken).ok_or(bad)?;
        let mut message = [0; RESPONSE];
        let preshared_key = peer.preshared_key.as_deref();
        let session = claim.respond(local, preshared_key, &mut message, now);
        let session = session.ok_or(bad)?;
        if peer.sessions.is_offer_ignored(now) {
            self.followed.record(peer.public_key, Outcome::Unanswered);
        }
        let ended = peer.sessions.offer(session);
        peer.cookies.sign(&keys.macs, &mut message, now);
        peer.last_answer = Some(now);
        self.by_index.insert(local, id);
        self.forget_indices(ended);
        self.record_handshake(id, &datagram, local, way, now);
        let peer = &mut self.peers[id];
        peer.tx_bytes += message.len() as u64;
        peer.timers.response_sent(now);
        self.deadlines.arm(id, &mut peer.timers);
        match way {
            Way::Hub(_) => self.send_by_hub(id, &message, now),
            Way::Relay(relay) => self.answer_by_relay(relay, datagram.from, &message, now),
            Way::Wire => {
                let sender = Endpoint::of_sender(&datagram);
                let endpoint = peer.endpoint.filter(|_| peer.direct.is_none());
                self.push_control(endpoint.unwrap_or(sender), &message);
            }
        }
        self.initiation_of_direct(id, way, now);
        Ok(())
    }

    /// Completes the handshake that this side began, and confirms the session to the peer.
    fn handle_response(
        &mut self,
        receiver: u32,
        datagram: Datagram<'_>,
        way: Way,
        now: Duration,
    ) -> Result<(), DropReason> {
        let unknown = DropReason::InboundUnknownSession;
        let id = *self.by_index.get(&receiver).ok_or(unknown)?;
        if !way.is_of(id) {
            return Err(unknown);
        }
        let peer = &mut self.peers[id];
        let awaited = peer.initiation.as_mut().filter(|i| i.local == receiver);
        let preshared_key = peer.preshared_key.as_deref();
        let session = awaited
            .ok_or(unknown)?
            .complete(datagram.bytes, preshared_key, now);
        let Some(session) = session else {
            peer.contact.was_unauthentic();
            return Err(DropReason::InboundBadHandshake);
        };
        peer.contact
            .answered_within(peer.timers.since_initiation(now));
        // From now on its index belongs to the session.
        peer.initiation = None;
        let ended = peer.sessions.complete(session);
        self.forget_indices(ended);
        self.record_handshake(id, &datagram, receiver, way, now);
        self.take_way(id, way, now);
        // A held packet confirms the session to the peer as well.
        if self.held.is_empty(id) {
            self.send_keepalive(id, now);
        }
        self.session_begins(id, now);
        self.deadlines.arm(id, &mut self.peers[id].timers);
        Ok(())
    }

    /// Keeps the cookie for the next attempt. A cookie reply does not authenticate its sender, so it causes
    /// no roaming and touches no timer.
    fn handle_cookie(
        &mut self,
        receiver: u32,
        datagram: Datagram<'_>,
        way: Way,
        now: Duration,
    ) -> Result<(), DropReason> {
        let id = self.by_index.get(&receiver);
        let id = id.filter(|id| way.is_of(**id));
        let peer = &mut self.peers[*id.ok_or(DropReason::InboundUnknownSession)?];
        let keys = peer.keys.as_deref().ok_or(DropReason::InboundNoKey)?;
        peer.cookies.accept(&keys.macs, datagram.bytes, now)
    }

    fn record_handshake(
        &mut self,
        id: usize,
        datagram: &Datagram<'_>,
        local: u32,
        way: Way,
        now: Duration,
    ) {
        let span = tracing::debug_span!("peer", peer = %self.peers[id].public_key);
        span.in_scope(|| {
            tracing::debug!(from = %datagram.from, session = local, "Handshake message received");
        });
        match way {
            Way::Relay(relay) => self.record_relayed(id, relay, datagram, now),
            Way::Wire | Way::Hub(_) => self.record_received(id, datagram, now),
        }
        self.peers[id].timers.session_derived(now);
    }

    /// Call when this side begins to send in a new session, which both sides now have.
    pub(crate) fn session_begins(&mut self, id: usize, now: Duration) {
        self.counters.handshakes += 1;
        let peer = &mut self.peers[id];
        peer.timers.handshake_complete();
        peer.return_route.answered(now);
        peer.contact.completed(now);
        self.followed.record(peer.public_key, Outcome::Answered);
        if peer.sessions.have_former() {
            peer.timers.former_replaced(now);
            self.deadlines.arm(id, &mut peer.timers);
        }
        self.stop_awaiting(id);
        self.release_held(id);
        self.session_of_direct(id, now);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use crate::{
        common::{Pair, SECOND, preshared},
        config::DeviceUpdate,
        node::Node,
    };

    /// Checks both indices: local indices match the sessions and initiations that exist, and addresses match
    /// the peers' endpoints.
    fn check(node: &Node) {
        let found: BTreeSet<_> = node.by_index.iter().map(|(i, id)| (*i, *id)).collect();
        let living = node.peers.iter().flat_map(|(id, peer)| {
            let awaited = peer.initiation.iter().map(|initiation| initiation.local);
            let indices = peer.sessions.indices().chain(awaited);
            indices.map(move |index| (index, id))
        });
        assert_eq!(found, living.collect());
        let at: BTreeSet<_> = node.by_address.iter().collect();
        let peers = node.peers.iter();
        assert_eq!(
            at,
            peers
                .filter_map(|(id, p)| Some((p.address()?, id)))
                .collect()
        );
    }

    #[test]
    fn an_index_is_found_as_long_as_its_session_lives() {
        let mut pair = Pair::connected();
        let mut to_a = pair.a.as_peer();
        to_a.endpoint = Some(pair.a.address);
        pair.b.set_peer(to_a, pair.now);
        let steps: [&dyn Fn(&mut Pair); 8] = [
            &|pair| pair.pass(121 * SECOND),
            &|pair| pair.pass(181 * SECOND),
            &|pair| {
                let mut peer = pair.b.as_peer();
                peer.preshared_key = preshared(5);
                pair.a.set_peer(peer, pair.now);
            },
            &|pair| {
                let mut peer = pair.a.as_peer();
                peer.preshared_key = preshared(5);
                pair.b.set_peer(peer, pair.now);
            },
            &|pair| {
                let _ = pair.a.node.take_keys_ended();
                pair.pass(541 * SECOND);
                assert!(pair.a.node.take_keys_ended());
            },
            &|pair| {
                pair.a.node.set_link(false, pair.now);
                check(&pair.a.node);
                assert!(pair.a.node.by_index.is_empty());
                assert!(pair.a.node.take_keys_ended());
                pair.a.node.set_link(true, pair.now);
            },
            &|pair| {
                let update = DeviceUpdate {
                    replace_peers: true,
                    peers: vec![pair.b.as_peer()],
                    ..DeviceUpdate::default()
                };
                pair.a.update(update, pair.now);
                assert!(pair.a.node.by_index.is_empty());
                assert!(pair.a.node.take_keys_ended());
            },
            &|pair| pair.pass(Duration::from_secs(100)),
        ];
        for step in steps {
            step(&mut pair);
            for n in 0..20 {
                match n % 3 {
                    0 => pair.a_sends(b"from a"),
                    1 => pair.b_sends(b"from b"),
                    _ => pair.pass(6 * SECOND),
                }
                check(&pair.a.node);
                // Some handshake messages get lost.
                if n % 5 == 0 {
                    pair.a.take_wire(pair.now);
                }
                pair.settle();
                check(&pair.a.node);
                check(&pair.b.node);
            }
        }
        assert!(pair.a.delivered.len() > 20 && pair.b.delivered.len() > 20);
    }
}
