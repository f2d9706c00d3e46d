//! Handshakes: begins them, answers them, and puts the new session to use.

use std::time::Duration;

use convoy_datagram::Datagram;

use crate::{
    counters::DropReason,
    node::Node,
    noise::{CONTROL_BYTES, Handshaken, Screened},
    peer::Endpoint,
    timers::jitter,
};

impl Node {
    /// Begins a handshake with the peer, unless one was begun less than Rekey-Timeout ago.
    pub(crate) fn initiate(&mut self, id: usize, now: Duration, is_retry: bool) {
        let peer = &mut self.peers[id];
        let (Some(_), Some(keys)) = (peer.endpoint, peer.keys.as_mut()) else {
            return;
        };
        if !is_retry {
            peer.timers.begin_attempts();
        }
        if !self.is_up {
            return;
        }
        if !peer.timers.may_initiate(now) {
            // This side may just have answered the peer's initiation, and the answer may get lost.
            peer.timers.initiate_later();
            return self.deadlines.arm(id, &mut peer.timers);
        }
        let mut buffer = [0; CONTROL_BYTES];
        let is_begun = keys.noise.initiate(&mut buffer).is_some();
        keys.follow_noise();
        if is_begun {
            self.initiate_with(id, &buffer, now);
        }
    }

    /// Sends an initiation that is already written.
    fn initiate_with(&mut self, id: usize, initiation: &[u8; CONTROL_BYTES], now: Duration) {
        let peer = &mut self.peers[id];
        let (Some(endpoint), Some(keys)) = (peer.endpoint, peer.keys.as_mut()) else {
            return;
        };
        if !peer.timers.may_initiate(now) {
            // boringtun now awaits a response that cannot come; the next initiation ends that.
            peer.timers.initiate_later();
            return self.deadlines.arm(id, &mut peer.timers);
        }
        keys.noise.await_response(initiation);
        tracing::debug!(peer = %peer.public_key, endpoint = %endpoint.address, "Sending handshake initiation");
        peer.tx_bytes += initiation.len() as u64;
        peer.timers.initiation_sent(now, jitter());
        self.deadlines.arm(id, &mut peer.timers);
        self.check_source(id, now);
        self.push_control(endpoint, initiation);
    }

    /// Handles an initiation, a response or a cookie reply.
    pub(crate) fn handle_handshake(
        &mut self,
        datagram: Datagram<'_>,
        now: Duration,
    ) -> Result<(), DropReason> {
        let id = self.screen(datagram, now)?;
        let is_initiation = datagram.bytes[0] == 1;
        let peer = &mut self.peers[id];
        if is_initiation {
            if peer.is_answered_just_now(now) {
                return Err(DropReason::InboundTooSoon);
            }
            peer.show_to_former(datagram.bytes)?;
        }
        let mut buffer = [0; CONTROL_BYTES];
        let keys = peer.keys.as_mut().ok_or(DropReason::InboundNoKey)?;
        let mut begun = [0; CONTROL_BYTES];
        let is_begun = is_initiation && keys.prepare_to_answer(&mut begun);
        let handshaken = match keys.noise.handshake(datagram.bytes, &mut buffer) {
            Ok(handshaken) => handshaken,
            Err(reason) => {
                if is_begun {
                    self.initiate_with(id, &begun, now);
                }
                return Err(reason);
            }
        };
        let (reply, local, is_complete) = match handshaken {
            // A cookie does not prove its sender's identity: no roaming, no timers.
            Handshaken::Cookie => return Ok(()),
            Handshaken::Respond { response, local } => {
                keys.sessions.offer(local, now);
                peer.last_answer = Some(now);
                (response, local, false)
            }
            Handshaken::Complete { keepalive, local } => {
                keys.sessions.complete(local, now);
                // A held packet confirms the session to the peer as well.
                let confirmation = if peer.held.is_empty() { keepalive } else { &[] };
                (confirmation, local, true)
            }
        };
        tracing::debug!(peer = %peer.public_key, from = %datagram.from, session = local, "Handshake message received");
        if peer.record_received(&datagram, self.routes, now) {
            self.source_questions.push_back(id);
        }
        peer.timers.session_derived(now);
        if !reply.is_empty() {
            peer.tx_bytes += reply.len() as u64;
            if is_complete {
                peer.timers.authenticated_sent(now);
            } else {
                peer.timers.response_sent(now);
            }
            let len = reply.len();
            let endpoint = peer.endpoint.unwrap_or(Endpoint::of_sender(&datagram));
            self.push_control(endpoint, &buffer[..len]);
        }
        if is_complete {
            self.session_begins(id, local, now);
        }
        self.deadlines.arm(id, &mut self.peers[id].timers);
        Ok(())
    }

    /// Checks MACs and load; returns the peer that the message claims to be from.
    fn screen(&mut self, datagram: Datagram<'_>, now: Duration) -> Result<usize, DropReason> {
        let identity = self.identity.as_ref().ok_or(DropReason::InboundNoKey)?;
        let (from, limiter) = (datagram.from.ip(), &mut self.handshake_limiter);
        match identity.screen(from, datagram.bytes, limiter, now)? {
            Screened::Initiation(key) => {
                let id = self.by_key.get(&key).copied();
                id.ok_or(DropReason::InboundUnknownPeer)
            }
            Screened::Reply { receiver } => {
                let id = self.by_index.get(&(receiver >> 8)).copied();
                id.ok_or(DropReason::InboundUnknownSession)
            }
            Screened::AskForCookie(reply) => {
                self.push_cookie(Endpoint::of_sender(&datagram), &reply);
                Err(DropReason::InboundUnderLoad)
            }
        }
    }

    /// Both sides have session `local`, and this side sends in it from now on.
    pub(crate) fn session_begins(&mut self, id: usize, local: u32, now: Duration) {
        self.counters.handshakes += 1;
        let peer = &mut self.peers[id];
        peer.timers.handshake_complete();
        peer.last_handshake = Some(now);
        if let Some(keys) = &mut peer.keys {
            keys.noise.stop_awaiting();
        }
        let is_present = peer
            .keys
            .as_ref()
            .is_some_and(|k| k.noise.index() == local >> 8);
        if is_present {
            let retired = peer.retire_former();
            self.forget_keys(id, retired);
        }
        self.release_held(id);
    }
}
