//! Peers that are reached through TURN servers, because UDP to them is blocked.
//!
//! ```text
//!   A ─── initiation ──────────────────────✗ peer      unanswered for 5 s: then both ways
//!   A ─── ChannelData ─── TURN server ─── UDP ─── peer the way of the first authentic answer carries data
//! ```
//! - A peer is an ordinary one, and its endpoint stays its own address: `relayed` only says which way datagrams take.
//!   What a server relays moves no endpoint.
//! - Nothing is sent to an address that is not a peer's endpoint, whatever a server says: it relays by channels, and a
//!   channel is bound to an endpoint, or to an address at which a peer may be met (`meet/relay.rs`), alone.
//! - A server is asked only once a peer needs it, the next one only when it fails, or has no address of a peer's family,
//!   and the allocation is given back soon after nobody needs it. While a peer is relayed, its handshakes also go
//!   directly, so that it returns.
//! - Servers by streams get their frames by [`Node::poll_relay_frame`] and
//!   [`DatagramSink::append_frame`](crate::DatagramSink::append_frame), and are opened by [`Node::poll_relay_event`].

mod drive;
mod inbound;
mod outbound;

use std::{net::SocketAddr, time::Duration};

use convoy_turn::HEADER_LEN;
use convoy_types::{MAX_RELAYS, Relay, RelayStatus};

use crate::{
    counters::DropReason,
    handshake::Way,
    node::Node,
    relays::{RelayEvent, RelayFrame, RelayId, Server},
};

/// How long an allocation outlives its last need: datagrams of peers may still be on their way.
const LINGER: Duration = Duration::from_secs(30);
/// Least time between two new allocations for changes of the network.
const BETWEEN_RENEWALS: Duration = Duration::from_secs(2);

impl Node {
    /// Sets the TURN servers, the preferred one first, instead of the former ones. A server that stays keeps its
    /// allocation; those beyond [`MAX_RELAYS`] are left out.
    pub fn set_relays(&mut self, wanted: &[Relay], now: Duration) {
        let wanted = &wanted[..wanted.len().min(MAX_RELAYS)];
        let mut relays = self.relays.take().unwrap_or_default();
        let mut former = std::mem::take(&mut relays.servers);
        for relay in wanted {
            let is_same = |it: &Server| {
                (it.relay.server, it.relay.transport) == (relay.server, relay.transport)
            };
            // A server gives one allocation to one address of this machine.
            if relays.servers.iter().any(is_same) {
                continue;
            }
            let known = former.iter().position(|it| it.relay == *relay);
            let server = match known {
                Some(n) => Some(former.swap_remove(n)),
                None => Server::new(RelayId(relays.added), relay.clone()),
            };
            relays.added += 1;
            relays.servers.extend(server);
        }
        for mut server in former {
            server.client.end(now);
            self.send_messages(&mut relays, &mut server);
            let dropped = server.client.take_dropped();
            let drops = &mut self.counters.drops;
            drops.add(DropReason::OutboundRelayNotReady, dropped);
            if server.is_stream() {
                relays.events.push_back(RelayEvent::Close(server.id));
            }
        }
        let has_work = !relays.events.is_empty() || !relays.frames.is_empty();
        self.relays = Some(relays).filter(|it| has_work || !it.servers.is_empty());
        match self.relays {
            Some(_) => self.update_relays(now),
            None => self.forget_routes_by_relay(),
        }
        self.allow_relays(now);
    }

    /// The state of the TURN servers.
    pub(crate) fn relay_statuses(&self) -> Vec<RelayStatus> {
        let relays = self.relays.iter().flat_map(|it| &it.servers);
        let relayed = || self.peers.iter().filter_map(|(_, peer)| peer.relayed);
        let carried = |id: RelayId| relayed().filter(|it| it.relay == id).count();
        relays.map(|it| it.status(carried(it.id))).collect()
    }

    /// The next stream to open or to close.
    pub fn poll_relay_event(&mut self) -> Option<RelayEvent> {
        self.relays.as_mut()?.events.pop_front()
    }

    /// The next control frame for a stream, to be sent ahead of what the sink has.
    pub fn poll_relay_frame(&mut self) -> Option<RelayFrame> {
        self.relays.as_mut()?.frames.pop_front()
    }

    /// Call when the stream to a server is open.
    pub fn relay_opened(&mut self, relay: RelayId, now: Duration) {
        if let Some(server) = self.relays.as_mut().and_then(|it| it.server(relay)) {
            server.client.handle_connected(now);
            self.update_relays(now);
        }
    }

    /// Call when a stream could not be opened, or has ended without [`RelayEvent::Close`], with the reason in words.
    pub fn relay_closed(&mut self, relay: RelayId, why: &str, now: Duration) {
        if let Some(server) = self.relays.as_mut().and_then(|it| it.server(relay)) {
            server.why_closed = Some(why.to_owned());
            server.client.handle_closed(now);
            self.update_relays(now);
        }
    }

    /// Returns whether a server is asked for by the address family, IPv4 or else IPv6.
    pub(crate) fn has_relays_over(&self, is_ipv4: bool) -> bool {
        let mut servers = self.relays.iter().flat_map(|it| &it.servers);
        servers.any(|it| it.is_asked && !it.is_stream() && it.relay.server.is_ipv4() == is_ipv4)
    }

    /// Takes the way of an authentic answer for the peer's data. Call it with each that begins a session.
    pub(crate) fn take_way(&mut self, id: usize, way: Way, now: Duration) {
        if self.relays.is_none() {
            return;
        }
        match way {
            // Its agent chooses the path.
            _ if self.peers[id].direct.is_some() => {}
            Way::Hub(_) => {}
            Way::Wire => self.go_directly(id, now + LINGER, now),
            Way::Relay(relay) => self.go_by_relay(id, relay, now),
        }
    }

    /// Lets the peer be reached directly first, as nothing is known of the way to it.
    pub(crate) fn leave_relay(&mut self, id: usize, now: Duration) {
        if self.relays.is_some() && self.peers[id].direct.is_none() {
            self.go_directly(id, now, now);
        }
    }

    /// Forgets a peer that has been removed.
    pub(crate) fn forget_relayed(&mut self, id: usize) {
        if let Some(relays) = &mut self.relays {
            relays.users.remove(&id);
        }
    }

    /// Ends all allocations without a word: the sockets are about to close.
    pub(crate) fn reset_relays(&mut self) {
        let Some(relays) = &mut self.relays else {
            return;
        };
        relays.users.clear();
        relays.needs.clear();
        let mut dropped = relays.frames.drain(..).count() as u64;
        let servers = std::mem::take(&mut relays.servers);
        for mut server in servers {
            server.client.drop_held();
            dropped += server.client.take_dropped();
            if server.is_stream() && server.is_asked {
                relays.events.push_back(RelayEvent::Close(server.id));
            }
            relays.servers.extend(Server::new(server.id, server.relay));
        }
        self.counters
            .drops
            .add(DropReason::OutboundLinkDown, dropped);
        self.deadlines.arm_relays(None);
        self.forget_routes_by_relay();
    }

    /// Requests new allocations, as the servers now see another address of this machine.
    pub(crate) fn renew_relays(&mut self, now: Duration) {
        let Some(relays) = &mut self.relays else {
            return;
        };
        let is_recent = |at: Duration| now.saturating_sub(at) < BETWEEN_RENEWALS;
        if relays.renewed_at.is_some_and(is_recent) {
            return;
        }
        relays.renewed_at = Some(now);
        for server in &mut relays.servers {
            server.client.renew(now);
        }
        self.update_relays(now);
    }

    /// Bounds datagrams to peers whose relay is at `to`: a path takes `limit` bytes there.
    pub(crate) fn limit_relayed(&mut self, to: SocketAddr, limit: usize, until: Duration) {
        for (_, peer) in &mut self.peers {
            if peer
                .relayed
                .is_some_and(|it| it.address.server == to && !it.is_stream())
            {
                peer.path_limit = Some((limit - HEADER_LEN, until));
            }
        }
    }

    fn go_directly(&mut self, id: usize, until: Duration, now: Duration) {
        let peer = &mut self.peers[id];
        if peer.relayed.take().is_some() {
            tracing::debug!(peer = %peer.public_key, "Data takes the direct way again");
            peer.path_limit = None;
            self.followed.record_relay(peer.public_key, None);
        }
        if let Some(user) = self.relays.as_mut().and_then(|it| it.users.get_mut(&id))
            && user.is_none_or(|known| until < known)
        {
            *user = Some(until);
            self.update_relays(now);
        }
    }

    fn go_by_relay(&mut self, id: usize, relay: RelayId, now: Duration) {
        let (peer, Some(relays)) = (&mut self.peers[id], &mut self.relays) else {
            return;
        };
        // Data goes to the peer's endpoint, so the server must serve that.
        let server = relays.server(relay);
        let serves =
            |server: &&mut Server| peer.address().is_some_and(|it| server.client.serves(it));
        let Some(server) = server.filter(serves) else {
            return;
        };
        let route = server.route_to(peer.address());
        if peer.relayed.map(|it| it.address) != Some(route.address) {
            let server = route.address.server;
            tracing::debug!(peer = %peer.public_key, %server, "Data is relayed");
            peer.path_limit = None;
            self.followed
                .record_relay(peer.public_key, Some(route.address));
        }
        peer.relayed = Some(route);
        relays.users.insert(id, None);
        self.update_relays(now);
    }

    fn forget_routes_by_relay(&mut self) {
        for (_, peer) in &mut self.peers {
            if peer.direct.is_none() && peer.relayed.take().is_some() {
                peer.path_limit = None;
                self.followed.record_relay(peer.public_key, None);
            }
        }
        self.deadlines.arm_relays(None);
    }
}
