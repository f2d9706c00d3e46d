//! Handles due timers.

use std::time::Duration;

use crate::{
    counters::DropReason,
    deadlines::{AGENTS, RELAYS},
    followed::Outcome,
    messages::DATA_OVERHEAD,
    node::Node,
    timers::Due,
};

/// Most peers served by one call: each may cost Diffie-Hellman operations, and packets wait meanwhile.
const PEERS_PER_CALL: usize = 4;

impl Node {
    /// Handles timers that are due at `now`. If many are due, handles some and returns true: call again for the rest.
    pub fn handle_timeout(&mut self, now: Duration) -> bool {
        for _ in 0..PEERS_PER_CALL {
            let Some((at, id)) = self.deadlines.pop(now) else {
                return false;
            };
            if id == AGENTS {
                self.handle_agents_timeout(now);
                continue;
            }
            if id == RELAYS {
                self.handle_relays_timeout(now);
                continue;
            }
            let Some(peer) = self.peers.get_mut(id) else {
                continue;
            };
            debug_assert_eq!(peer.timers.armed, Some(at));
            peer.timers.armed = None;
            while let Some(due) = self.peers[id].timers.due(now) {
                self.handle_due(id, due, now);
            }
            self.deadlines.arm(id, &mut self.peers[id].timers);
        }
        true
    }

    fn handle_due(&mut self, id: usize, due: Due, now: Duration) {
        match due {
            Due::Retransmit | Due::NewHandshake => {
                // No answer came: perhaps the source address is wrong.
                self.peers[id].forget_source();
                if due == Due::Retransmit {
                    self.retransmission_of_direct(id, now);
                }
                self.initiate(id, now, due == Due::Retransmit);
            }
            Due::Keepalive => self.send_keepalive(id, now),
            Due::GiveUp => {
                let peer = &self.peers[id];
                let _span = tracing::debug_span!("peer", peer = %peer.public_key).entered();
                tracing::debug!("Giving up handshake");
                self.record_unanswered(id, now);
                let peer = &mut self.peers[id];
                self.followed.record(peer.public_key, Outcome::GivenUp);
                peer.timers.gave_up(now);
                peer.return_route.settle();
                self.stop_awaiting(id);
                self.drop_held(id, DropReason::OutboundHandshakeTimeout);
                self.leave_relay(id, now);
            }
            Due::EndFormer => {
                let ended = self.peers[id].sessions.end_former();
                self.forget_indices(ended);
            }
            Due::EraseKeys => {
                self.end_sessions(id);
                self.leave_relay(id, now);
            }
        }
    }

    /// Sends an empty data message, or begins a handshake if there is no session to send it in.
    pub(crate) fn send_keepalive(&mut self, id: usize, now: Duration) {
        let peer = &mut self.peers[id];
        // Restart the timer even without an endpoint or a key.
        peer.timers.traversed(now);
        self.deadlines.arm(id, &mut peer.timers);
        self.check_source(id, now);
        let peer = &mut self.peers[id];
        if !peer.is_reachable() {
            return;
        }
        let endpoint = peer.endpoint;
        let Some(session) = peer.sessions.sending(now) else {
            return self.initiate(id, now, false);
        };
        let mut buffer = [0; DATA_OVERHEAD];
        let counter = session.reserve();
        let Some(keepalive) = session.seal(&self.aead, counter, &[], &mut buffer) else {
            return;
        };
        let is_old = session.wants_rekey(now);
        peer.tx_bytes += keepalive.len() as u64;
        peer.timers.authenticated_sent(now);
        self.deadlines.arm(id, &mut peer.timers);
        self.push_message(id, endpoint, keepalive, now);
        if is_old {
            self.initiate(id, now, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Pair;

    #[test]
    fn setting_the_link_down_erases_the_keys_of_its_sessions() {
        let mut pair = Pair::connected();
        assert!(has_session_keys(&pair.a.node));
        pair.a.node.set_link(false, pair.now);
        assert!(!has_session_keys(&pair.a.node));
    }

    #[test]
    fn keys_are_gone_nine_minutes_after_the_last_handshake() {
        let mut pair = Pair::connected();
        let (almost, second) = (Duration::from_secs(539), Duration::from_secs(1));
        for (time, has_keys) in [(almost, true), (second, false)] {
            pair.pass(time);
            for host in [&pair.a, &pair.b] {
                assert_eq!(has_session_keys(&host.node), has_keys, "{:?}", pair.now);
            }
        }
    }

    fn has_session_keys(node: &Node) -> bool {
        node.peers[0].sessions.current().is_some()
    }
}
