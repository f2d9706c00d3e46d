//! What happens when time passes.

use std::time::Duration;

use crate::{counters::DropReason, node::Node, peer::Keys, timers::Due};

/// Peers served by one call: each may cost a Diffie-Hellman, and packets wait meanwhile.
const PEERS_PER_CALL: usize = 64;

impl Node {
    /// Does what is due at `now`; if that is much, a part of it, and the rest when called again.
    pub fn handle_timeout(&mut self, now: Duration) {
        for _ in 0..PEERS_PER_CALL {
            let Some((at, id)) = self.deadlines.pop(now) else {
                break;
            };
            let Some(peer) = self.peers.get_mut(id) else {
                continue;
            };
            // An entry of a peer that was removed, or one that an earlier one has replaced.
            if peer.timers.armed != Some(at) {
                continue;
            }
            peer.timers.armed = None;
            while let Some(due) = self.peers[id].timers.due(now) {
                self.handle_due(id, due, now);
            }
            self.deadlines.arm(id, &mut self.peers[id].timers);
        }
    }

    fn handle_due(&mut self, id: usize, due: Due, now: Duration) {
        match due {
            Due::Retransmit | Due::NewHandshake => {
                // The address that was spoken to may be what no longer works.
                self.peers[id].forget_source();
                self.initiate(id, now, due == Due::Retransmit);
            }
            Due::Keepalive => self.send_keepalive(id, now),
            Due::GiveUp => {
                tracing::debug!(peer = %self.peers[id].public_key, "Handshake given up");
                let peer = &mut self.peers[id];
                peer.timers.gave_up(now);
                self.drop_held(id, DropReason::OutboundHandshakeTimeout);
            }
            Due::EraseKeys => {
                let peer = &mut self.peers[id];
                peer.clear_sessions(None);
                // By its own clock boringtun wipes sessions of this age.
                let all = peer.keys.iter_mut().chain(&mut peer.former);
                all.for_each(Keys::wipe_expired);
            }
        }
    }

    pub(crate) fn drop_held(&mut self, id: usize, reason: DropReason) {
        let held = std::mem::take(&mut self.peers[id].held);
        self.held_bytes -= held.iter().map(crate::held::Held::cost).sum::<usize>();
        self.counters.drops.add(reason, held.len() as u64);
    }
}
