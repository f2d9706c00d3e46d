//! Messages that leave through TURN servers.

use std::{net::SocketAddr, time::Duration};

use crate::{
    counters::DropReason,
    messages::INITIATION,
    node::Node,
    relays::{RelayId, Relayed, Relays},
};

impl Node {
    /// Sends an initiation, before which `unanswered` have had no answer, directly, by a relay, or both ways.
    ///
    /// A peer answers only the first copy that arrives. If only the way back is blocked, that is the direct one in
    /// vain; so every other attempt goes by the relay alone.
    #[cold]
    pub(crate) fn push_initiation(
        &mut self,
        id: usize,
        message: &[u8; INITIATION],
        unanswered: u32,
        now: Duration,
    ) {
        let peer = &self.peers[id];
        let endpoint = peer.endpoint;
        if peer.direct.is_some() {
            return self.push_message(id, endpoint, message, now);
        }
        let is_relayed = peer.relayed.is_some();
        let wants_relay = endpoint.is_some() && (is_relayed || unanswered > 0);
        let by_relay = wants_relay && self.wish_for_relay(id, now);
        let is_direct_turn = unanswered == 0 || (unanswered % 2 == 1) != is_relayed;
        match endpoint {
            None => self.send_by_hub(id, message, now),
            Some(endpoint) if is_direct_turn || !by_relay => self.push_control(endpoint, message),
            Some(_) => {}
        }
        if by_relay {
            self.send_by_relay(id, message, now);
        }
    }

    /// Sends a message to the peer's endpoint by a relay, or holds it until there is a channel.
    #[cold]
    pub(crate) fn send_by_relay(&mut self, id: usize, message: &[u8], now: Duration) {
        let peer = &self.peers[id];
        let (Some(to), relay) = (peer.address(), peer.relayed.map(|it| it.relay)) else {
            return self.counters.drops.add(DropReason::OutboundNoEndpoint, 1);
        };
        self.send_by(to, message, now, |relays| {
            let present = relays.servers.iter().position(|it| Some(it.id) == relay);
            present.or_else(|| relays.best_for(to))
        });
    }

    /// Answers a message by the relay through which it has come from `to`.
    #[cold]
    pub(crate) fn answer_by_relay(
        &mut self,
        relay: RelayId,
        to: SocketAddr,
        message: &[u8],
        now: Duration,
    ) {
        self.send_by(to, message, now, |relays| {
            relays.servers.iter().position(|it| it.id == relay)
        });
    }

    /// Notes that data has left by the peer's relay.
    #[inline(never)]
    pub(crate) fn note_relayed(&mut self, id: usize, now: Duration) {
        let relay = self.peers[id].relayed.map(|it| it.relay);
        if let (Some(relay), Some(relays)) = (relay, &mut self.relays)
            && let Some(server) = relays.server(relay)
            && server.client.note_sent(now)
        {
            self.update_relays(now);
        }
    }

    /// Asks the server of a path that has died whether it still has the allocation, unless something arrives by it soon.
    #[cold]
    pub(crate) fn doubt_relay(&mut self, relayed: Relayed, now: Duration) {
        if let Some(relays) = &mut self.relays
            && let Some(server) = relays.server(relayed.relay)
            && server.client.note_sent(now)
        {
            self.update_relays(now);
        }
    }

    fn send_by(
        &mut self,
        to: SocketAddr,
        message: &[u8],
        now: Duration,
        choose: impl FnOnce(&Relays) -> Option<usize>,
    ) {
        let Some(mut relays) = self.relays.take() else {
            return;
        };
        match choose(&relays) {
            Some(n) => {
                let mut server = relays.servers.remove(n);
                self.send_wrapped(&mut relays, &mut server, to, message, now);
                relays.servers.insert(n, server);
            }
            None => self
                .counters
                .drops
                .add(DropReason::OutboundRelayNotReady, 1),
        }
        self.relays = Some(relays);
        // Once for all messages of a tick, as the update goes through all users.
        self.deadlines.hasten_relays(now);
    }

    /// Lets the peer be reached by a relay, which takes a moment if none is ready. Returns whether one may be.
    fn wish_for_relay(&mut self, id: usize, now: Duration) -> bool {
        let Some(relays) = &mut self.relays else {
            return false;
        };
        if relays.users.insert(id, None) != Some(None) {
            self.update_relays(now);
        }
        let to = self.peers[id].address();
        let mut servers = self.relays.iter().flat_map(|it| &it.servers);
        servers.any(|it| it.is_asked && it.may_serve(to.as_slice()))
    }
}
