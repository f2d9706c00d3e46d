//! Drives the agents: their messages, their time and their choices.

use std::{net::SocketAddr, time::Duration};

use convoy_paths::{Event, MAX_MESSAGE, Message, Origin, Transmit};
use convoy_types::{Datagram, DirectPath, WhyNotDirect};

use crate::{
    config::PublicKey,
    counters::DropReason,
    handshake::Way,
    messages::{DATA_HEADER, DATA_OVERHEAD, LONGEST_BY_HUB},
    node::Node,
    peer::Endpoint,
    relays::RelayId,
    seams::PaddablePacket as _,
};

/// Handshakes that go unanswered on a path before it is given up.
const MOST_UNANSWERED: u32 = 2;

impl Node {
    /// Returns the hub that carries a packet for a peer without an endpoint, and begins to meet the peer if it is time.
    /// `None` for an ordinary peer.
    #[cold]
    #[inline(never)]
    pub(crate) fn by_hub(&mut self, id: usize, now: Duration) -> Option<(usize, Endpoint)> {
        let direct = self.peers[id].direct.as_deref_mut()?;
        let hub = direct.hub?;
        direct.packets_by_hub += 1;
        if direct.agent.want(now) {
            if self.peers[id].can_send(now) {
                self.session_of_direct(id, now);
            } else {
                self.initiate(id, now, false);
                self.drive(id, now);
            }
        }
        Some((hub, self.peers[hub].endpoint?))
    }

    /// Call when there is a new session with the peer.
    pub(crate) fn session_of_direct(&mut self, id: usize, now: Duration) {
        if let Some(direct) = self.peers[id].direct.as_deref_mut() {
            direct.agent.handle_session(now);
            self.drive(id, now);
        }
    }

    /// Call after an authentic initiation of the peer.
    pub(crate) fn initiation_of_direct(&mut self, id: usize, way: Way, now: Duration) {
        let peer = &mut self.peers[id];
        if let Some(direct) = peer.direct.as_deref_mut() {
            let is_by_hub = matches!(way, Way::Hub(_));
            direct
                .agent
                .handle_initiation(is_by_hub, peer.rx_packets, now);
            self.drive(id, now);
        }
    }

    /// Call before an initiation is sent again, as the last one was not answered.
    pub(crate) fn retransmission_of_direct(&mut self, id: usize, now: Duration) {
        let peer = &mut self.peers[id];
        if let Some(direct) = peer.direct.as_deref_mut()
            && peer.timers.attempts() >= MOST_UNANSWERED
        {
            direct.agent.drop_path(WhyNotDirect::Unanswered, now);
            self.drive(id, now);
        }
    }

    /// Takes the payload of an authentic datagram that is not a packet: a message about paths.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_probe(
        &mut self,
        id: usize,
        text: &[u8],
        (datagram, relay): (&Datagram<'_>, Option<RelayId>),
        now: Duration,
    ) -> Result<Option<usize>, DropReason> {
        let remote = datagram.from;
        let origin = match relay {
            None => Origin::Direct {
                remote,
                local: datagram.arrival.map(|arrival| arrival.address),
            },
            Some(relay) if self.is_relay_of_directs(relay, remote) => Origin::Relay { remote },
            Some(_) => return Err(DropReason::InboundRelayStranger),
        };
        self.take_message(id, text, origin, now).map(|()| None)
    }

    /// Takes an authentic message about paths.
    pub(crate) fn take_message(
        &mut self,
        id: usize,
        text: &[u8],
        origin: Origin,
        now: Duration,
    ) -> Result<(), DropReason> {
        let malformed = DropReason::InboundMalformed;
        let direct = self.peers[id].direct.as_deref_mut().ok_or(malformed)?;
        let message = Message::read(text).map_err(|_| malformed)?;
        let (own, inside) = (&self.directs.own, &self.allowed_ips);
        // Routes of whole families lead around the tunnel for its own datagrams, others into it.
        let may_probe = |address: SocketAddr| {
            !own.contains(&address.ip()) && !inside.has_prefix_around(address.ip())
        };
        let taken = direct.agent.handle_message(message, origin, may_probe, now);
        self.drive(id, now);
        taken
    }

    /// Takes a datagram that is not WireGuard's: the answer of a STUN server.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_foreign(
        &mut self,
        datagram: Datagram<'_>,
        now: Duration,
    ) -> Result<(), DropReason> {
        let stun = &mut self.directs.stun;
        let is_answer = convoy_stun::looks_like_stun(datagram.bytes)
            && stun.handle_datagram(datagram.from, datagram.bytes, now);
        if !is_answer {
            return Err(DropReason::InboundNotWireGuard);
        }
        if stun.take_changed() {
            self.tell_candidates(now);
        }
        self.arm_agents(now);
        Ok(())
    }

    /// Tells a peer that is about to be removed to send by the hub, whichever way it is reached.
    pub(super) fn say_leave(&mut self, key: &PublicKey, now: Duration) {
        let Some(id) = self
            .direct_id(key)
            .filter(|id| self.peers[*id].can_send(now))
        else {
            return;
        };
        let endpoint = self.peers[id].endpoint;
        let is_relayed = self.peers[id].relayed.is_some();
        let path = endpoint.map(|endpoint| match is_relayed {
            true => Origin::Relay {
                remote: endpoint.address,
            },
            false => Origin::Direct {
                remote: endpoint.address,
                local: endpoint.source,
            },
        });
        for to in path.into_iter().chain([Origin::Hub]) {
            let message = Message::Leave;
            self.send_message(id, &Transmit { message, to }, now);
        }
    }

    /// Handles the time of all agents whose time has come.
    pub(crate) fn handle_agents_timeout(&mut self, now: Duration) {
        for id in self.direct_ids() {
            let peer = &mut self.peers[id];
            let Some(direct) = peer.direct.as_deref_mut() else {
                continue;
            };
            if direct.agent.poll_timeout().is_some_and(|at| at <= now) {
                let packets = peer.rx_packets + peer.tx_packets;
                direct.agent.handle_timeout(packets, now);
                self.drive(id, now);
            }
        }
        self.arm_agents(now);
        if self.directs.stun.take_changed() {
            self.tell_candidates(now);
        }
    }

    /// Gives every peer and every STUN server another chance.
    pub(super) fn network_changed(&mut self, now: Duration) {
        self.directs.stun.network_changed(now);
        // Servers see another address of this machine.
        if self.relays.as_ref().is_some_and(|it| !it.needs.is_empty()) {
            self.renew_relays(now);
        }
        for id in self.direct_ids() {
            if let Some(direct) = self.peers[id].direct.as_deref_mut() {
                direct.agent.network_changed(now);
            }
        }
    }

    /// Tells the peers at which addresses this machine may be reached.
    pub(super) fn tell_candidates(&mut self, now: Duration) {
        let candidates = self.directs.candidates();
        for id in self.direct_ids() {
            if let Some(direct) = self.peers[id].direct.as_deref_mut() {
                direct.agent.set_local(&candidates, now);
                self.drive(id, now);
            }
        }
    }

    /// Sends the messages of the peer's agent, and adopts the path that it has chosen.
    pub(super) fn drive(&mut self, id: usize, now: Duration) {
        while let Some(direct) = self.peers[id].direct.as_deref_mut() {
            let budget = &mut self.directs.budget;
            let random = || self.randomness.number();
            let Some(transmit) = direct.agent.poll_transmit(budget, random, now) else {
                break;
            };
            self.send_message(id, &transmit, now);
        }
        let direct = self.peers[id].direct.as_deref_mut();
        if let Some(event) = direct.and_then(|direct| direct.agent.poll_event()) {
            self.change_path(id, event, now);
        }
        self.arm_agents(now);
    }

    /// Sees to it that the agents get their time, and that STUN servers are asked while one of them is at work.
    pub(super) fn arm_agents(&mut self, now: Duration) {
        self.ask_relays(now);
        let peers = self.directs.by_key.values().map(|id| &self.peers[*id]);
        let agents = peers.filter_map(|peer| Some(&peer.direct.as_deref()?.agent));
        let next = agents.filter_map(convoy_paths::Agent::poll_timeout).min();
        match next {
            Some(_) => self.directs.stun.start(now),
            None => self.directs.stun.stop(),
        }
        self.directs.stun.handle_timeout(now);
        while let Some(request) = self
            .directs
            .stun
            .poll_transmit(|| self.randomness.bytes(), now)
        {
            let endpoint = Endpoint {
                address: request.to,
                source: None,
            };
            self.push_control(endpoint, &request.bytes);
        }
        let next = next.into_iter().chain(self.directs.stun.poll_timeout());
        self.deadlines.arm_agents(next.min());
    }

    /// Seals a message about paths and sends it.
    fn send_message(&mut self, id: usize, transmit: &Transmit, now: Duration) {
        let peer = &mut self.peers[id];
        let Some(session) = peer.sessions.sending(now) else {
            return self.initiate(id, now, false);
        };
        let mut text = Vec::with_capacity(MAX_MESSAGE);
        transmit.message.write(&mut text);
        let mut buffer = [0; LONGEST_BY_HUB];
        buffer[DATA_HEADER..][..text.len()].copy_from_slice(&text);
        let length = text.len().next_multiple_of(16) + DATA_OVERHEAD;
        let counter = session.reserve();
        let Some(datagram) = session.seal_in_place(&self.aead, counter, &mut buffer[..length])
        else {
            return;
        };
        let is_old = session.wants_rekey(now);
        peer.tx_bytes += length as u64;
        match transmit.to {
            Origin::Hub => self.send_by_hub(id, datagram, now),
            Origin::Direct { remote, local } => {
                let endpoint = Endpoint {
                    address: remote,
                    source: local,
                };
                self.push_control(endpoint, datagram);
            }
            Origin::Relay { remote } => self.send_by_channel(remote, datagram),
        }
        if is_old {
            self.initiate(id, now, false);
        }
    }

    pub(super) fn change_path(&mut self, id: usize, event: Event, now: Duration) {
        let peer = &mut self.peers[id];
        let _span = tracing::debug_span!("peer", peer = %peer.public_key).entered();
        let (endpoint, path, by_relay) = match event {
            Event::Direct {
                remote,
                local,
                kind,
                by_relay,
            } => {
                tracing::debug!(%remote, kind = kind.name(), "Data takes a direct path");
                let endpoint = Endpoint {
                    address: remote,
                    source: local,
                };
                let path = DirectPath {
                    remote,
                    kind,
                    round_trip: None,
                };
                (Some(endpoint), Ok(path), by_relay)
            }
            Event::Hub(why) => {
                tracing::debug!(why = why.name(), "Data goes by the hub");
                (None, Err(why), false)
            }
        };
        let news = Some(path.map(|path: DirectPath| (path.remote, path.kind)));
        if let Some(direct) = peer.direct.as_deref_mut()
            && direct.reported != news
        {
            direct.reported = news;
            self.followed.record_path(peer.public_key, path);
        }
        let former = peer.address();
        let relays = self.relays.as_deref().filter(|_| by_relay);
        let route = relays.and_then(|relays| relays.route_of_direct(endpoint?.address));
        // Without its channel, data would leave from here.
        let endpoint = endpoint.filter(|_| !by_relay || route.is_some());
        let lost = peer
            .relayed
            .filter(|_| event == Event::Hub(WhyNotDirect::Unanswered));
        peer.set_path(endpoint, route);
        self.by_address.peer_moved(id, former, peer.address());
        if let Some(relayed) = lost {
            self.doubt_relay(relayed, now);
        }
        if endpoint.is_none() {
            self.hold_for_hub(id, now);
            if event == Event::Hub(WhyNotDirect::NoAnswer) {
                self.stop_awaiting(id);
                self.peers[id].timers.give_up();
            }
        }
    }

    /// Gives the packets that are held for a path to the hub.
    fn hold_for_hub(&mut self, id: usize, now: Duration) {
        let direct = self.peers[id].direct.as_deref();
        let Some(hub) = direct.and_then(|direct| direct.hub) else {
            return;
        };
        while let Some(packet) = self.held.pop(id) {
            self.hold(hub, packet.bytes(), now);
        }
    }
}
