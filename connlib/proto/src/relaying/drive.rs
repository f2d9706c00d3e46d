//! Drives the clients: their messages, their time, and the ways of peers that follow from them.

use std::{net::SocketAddr, time::Duration};

use convoy_turn::{Event, header};

use crate::{
    counters::DropReason,
    messages::DATA_OVERHEAD,
    node::Node,
    peer::Endpoint,
    relays::{RelayEvent, RelayId, Relays, Server},
};

impl Node {
    /// Handles the time of all servers.
    pub(crate) fn handle_relays_timeout(&mut self, now: Duration) {
        if let Some(relays) = &mut self.relays {
            for server in &mut relays.servers {
                if server.client.poll_timeout().is_some_and(|at| at <= now) {
                    server.client.handle_timeout(now);
                }
            }
            relays
                .users
                .retain(|_, until| until.is_none_or(|until| now < until));
        }
        self.update_relays(now);
    }

    /// Brings servers and peers in line: call it after any change of either.
    #[cold]
    #[inline(never)]
    pub(crate) fn update_relays(&mut self, now: Duration) {
        let Some(mut relays) = self.relays.take() else {
            return;
        };
        let users = relays.users.keys().filter_map(|id| self.peers.get(*id));
        let endpoints: Vec<_> = users.filter_map(|peer| peer.address()).collect();
        let all = relays.to_reach(&endpoints);
        relays.ask_next(&endpoints);
        for n in 0..relays.servers.len() {
            let is_asked = relays.servers[n].is_asked;
            let peers = if is_asked { &all[..] } else { &[] };
            // There are no more than it takes.
            let _ = relays.servers[n].client.set_peers(peers, now);
            self.drive_server(&mut relays, n, now);
        }
        if relays.ask_next(&endpoints) {
            self.relays = Some(relays);
            return self.update_relays(now);
        }
        self.update_routes(&relays);
        let timeouts = relays
            .servers
            .iter()
            .filter_map(|it| it.client.poll_timeout());
        let ends = relays.users.values().flatten().copied();
        self.deadlines.arm_relays(timeouts.chain(ends).min());
        self.relays = Some(relays);
        if !self.directs.by_key.is_empty() {
            self.tell_agents_of_relays(now);
        }
    }

    /// Sends a message through the channel that a server has to `to`; returns whether it has one.
    pub(crate) fn push_wrapped(
        &mut self,
        relays: &mut Relays,
        relay: RelayId,
        to: SocketAddr,
        message: &[u8],
    ) -> bool {
        let Some(n) = relays.servers.iter().position(|it| it.id == relay) else {
            return false;
        };
        let server = relays.servers.remove(n);
        let channel = server.client.channel(to);
        if let Some(channel) = channel {
            let frame = [&header(channel, message.len()), message].concat();
            self.send_to_server(relays, &server, &frame);
        }
        relays.servers.insert(n, server);
        channel.is_some()
    }

    fn drive_server(&mut self, relays: &mut Relays, n: usize, now: Duration) {
        let mut server = relays.servers.remove(n);
        self.send_messages(relays, &mut server);
        while let Some(event) = server.client.poll_event() {
            let relay = server.relay.server;
            match event {
                Event::Connect => {
                    let wanted = Box::new(server.relay.clone());
                    relays.push_event(RelayEvent::Connect(server.id, wanted));
                }
                Event::Close if server.is_stream() => {
                    relays.push_event(RelayEvent::Close(server.id));
                }
                Event::Close => {}
                Event::Ready(relayed) if self.is_known_otherwise(relayed) => {
                    server.client.reject_address(now);
                    self.send_messages(relays, &mut server);
                }
                Event::Ready(relayed) => tracing::debug!(%relay, %relayed, "The relay is ready"),
                Event::Failed(why) => tracing::debug!(%relay, %why, "The relay fails"),
                Event::Bound(peer) => tracing::debug!(%relay, %peer, "The relay reaches a peer"),
            }
        }
        while let Some((to, message)) = server.client.poll_held(now) {
            self.send_wrapped(relays, &mut server, to, &message, now);
        }
        let drops = &mut self.counters.drops;
        drops.add(
            DropReason::OutboundRelayNotReady,
            server.client.take_dropped(),
        );
        relays.servers.insert(n, server);
    }

    /// Returns whether an address is a peer's or this machine's, so that no server can have given it.
    fn is_known_otherwise(&self, address: SocketAddr) -> bool {
        let own = self.directs.candidates();
        self.by_address.peers_at(address).next().is_some()
            || own.iter().any(|it| it.address == address)
    }

    /// Sends the messages to a server that wait.
    pub(super) fn send_messages(&mut self, relays: &mut Relays, server: &mut Server) {
        while let Some(message) = server.client.poll_transmit() {
            self.send_to_server(relays, server, &message);
        }
    }

    /// Sends a message through the channel to `to`, or holds it until there is one.
    pub(super) fn send_wrapped(
        &mut self,
        relays: &mut Relays,
        server: &mut Server,
        to: SocketAddr,
        message: &[u8],
        now: Duration,
    ) {
        let Some(channel) = server.client.channel(to) else {
            return server.client.hold(to, message, now);
        };
        let frame = [&header(channel, message.len()), message].concat();
        // Nobody answers a keepalive.
        if message.len() > DATA_OVERHEAD {
            let _ = server.client.note_sent(now);
        }
        self.send_to_server(relays, server, &frame);
    }

    fn send_to_server(&mut self, relays: &mut Relays, server: &Server, message: &[u8]) {
        if !server.is_stream() {
            let endpoint = Endpoint {
                address: server.relay.server,
                source: None,
            };
            return self.push_control(endpoint, message);
        }
        if !relays.push_frame(server.id, message) {
            self.counters.drops.add(DropReason::OutboundQueueFull, 1);
        }
    }

    /// Lets the data of relayed peers take a server that reaches them, the present one if it does.
    fn update_routes(&mut self, relays: &Relays) {
        for id in relays.users.keys() {
            let Some(peer) = self.peers.get_mut(*id) else {
                continue;
            };
            let (Some(relayed), Some(endpoint)) = (peer.relayed, peer.address()) else {
                continue;
            };
            let mut servers = relays.servers.iter();
            let present = servers.clone().find(|it| it.id == relayed.relay);
            let present_reaches = present.filter(|it| it.reaches(endpoint));
            let reaches = || servers.find(|it| it.reaches(endpoint));
            let best = present_reaches.or_else(reaches).or(present);
            peer.relayed = best
                .or(relays.servers.first())
                .map(|it| it.route_to(Some(endpoint)));
            let address = peer.relayed.map(|it| it.address);
            if address != Some(relayed.address) {
                peer.path_limit = None;
                self.followed.record_relay(peer.public_key, address);
            }
        }
    }
}
