//! What happens when time passes.

use std::time::Duration;

use crate::{counters::DropReason, node::Node, timers::Due};

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
                if let Some(keys) = &mut peer.keys {
                    keys.noise.stop_awaiting();
                }
                self.drop_held(id, DropReason::OutboundHandshakeTimeout);
            }
            Due::EraseKeys => {
                if let Some(identity) = &self.identity {
                    let former = self.peers[id].erase_sessions(identity);
                    self.forget_keys(id, former);
                }
            }
        }
    }

    pub(crate) fn drop_held(&mut self, id: usize, reason: DropReason) {
        let held = std::mem::take(&mut self.peers[id].held);
        self.held_bytes -= held.iter().map(crate::held::Held::cost).sum::<usize>();
        self.counters.drops.add(reason, held.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Pair;

    #[test]
    fn a_link_that_goes_down_takes_the_keys_of_its_sessions_with_it() {
        let mut pair = Pair::connected();
        assert!(has_session_keys(&pair.a.node));
        pair.a.node.set_link(false, pair.now);
        pair.a.tick(pair.now);
        assert!(!has_session_keys(&pair.a.node));
    }

    /// `cargo test -p convoy-proto --features mock-clock --lib keys_are_gone`
    #[cfg(feature = "mock-clock")]
    #[test]
    fn keys_are_gone_nine_minutes_after_the_last_handshake() {
        let mut pair = Pair::connected();
        let nine_minutes = Duration::from_secs(540);
        for (time, has_keys) in [(nine_minutes, true), (Duration::from_secs(2), false)] {
            mock_instant::MockClock::advance(time);
            pair.pass(time);
            for host in [&pair.a, &pair.b] {
                assert_eq!(has_session_keys(&host.node), has_keys, "{:?}", pair.now);
            }
        }
    }

    fn has_session_keys(node: &Node) -> bool {
        let keys = node.peers[0].keys.as_ref();
        keys.is_some_and(|keys| keys.noise.has_session())
    }
}
