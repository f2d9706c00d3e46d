//! The state of one peer.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use convoy_noise::{Cookies, Initiation, PeerKeys, Tai64n};
use convoy_types::{Datagram, Destination, MAX_UDP_PAYLOAD};

use crate::{
    config::{PeerSnapshot, PresharedKey, PublicKey},
    contact::Contact,
    direct::Direct,
    prefixes::Prefixes,
    relays::Relayed,
    return_route::{ReturnRoute, RouteQuestions, Until, Way},
    sessions::Sessions,
    timers::Timers,
};

/// A peer's endpoint, and the sticky source: the local address to send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) source: Option<IpAddr>,
}

impl Endpoint {
    /// The endpoint for answers to `datagram`.
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

/// Least time between two accepted initiations of one peer, as in the reference.
const BETWEEN_INITIATIONS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) public_key: PublicKey,
    /// Boxed, so that no move leaves a copy behind.
    pub(crate) preshared_key: Option<Box<PresharedKey>>,
    /// `None` while the device has no private key, and for a public key of low order.
    pub(crate) keys: Option<Box<PeerKeys>>,
    pub(crate) cookies: Cookies,
    /// The initiation that awaits its response.
    pub(crate) initiation: Option<Initiation>,
    pub(crate) sessions: Sessions,
    /// The greatest timestamp of an accepted initiation. Initiations up to it are replays, even after a change of keys.
    pub(crate) greatest_stamp: Tai64n,
    pub(crate) timers: Timers,
    pub(crate) endpoint: Option<Endpoint>,
    /// The part of a peer that is met through a hub.
    pub(crate) direct: Option<Box<Direct>>,
    /// The relay that carries its data, if it cannot be reached directly.
    pub(crate) relayed: Option<Relayed>,
    pub(crate) return_route: ReturnRoute,
    /// Whether the peer is among those that have held packets and a session.
    pub(crate) is_ready: bool,
    /// The longest datagram that the path takes, in bytes, and the time at which that is forgotten.
    pub(crate) path_limit: Option<(usize, Duration)>,
    pub(crate) allowed_ips: Prefixes,
    /// The peer's place in the order of adding.
    pub(crate) added: u64,
    pub(crate) contact: Contact,
    /// Time at which the peer's last initiation was accepted.
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
            cookies: Cookies::default(),
            initiation: None,
            sessions: Sessions::default(),
            greatest_stamp: Tai64n::default(),
            timers: Timers::default(),
            endpoint: None,
            direct: None,
            relayed: None,
            return_route: ReturnRoute::default(),
            is_ready: false,
            path_limit: None,
            allowed_ips: Prefixes::default(),
            added,
            contact: Contact::default(),
            last_answer: None,
            rx_bytes: 0,
            tx_bytes: 0,
            rx_packets: 0,
            tx_packets: 0,
        }
    }

    /// Returns whether an initiation was accepted less than 20 ms ago.
    pub(crate) fn is_answered_just_now(&self, now: Duration) -> bool {
        let least = |at: Duration| now.saturating_sub(at) < BETWEEN_INITIATIONS;
        self.last_answer.is_some_and(least)
    }

    /// Returns whether there is a session to send in now.
    pub(crate) fn can_send(&self, now: Duration) -> bool {
        self.sessions.current().is_some_and(|s| s.can_send(now))
    }

    /// The longest datagram that the path to the peer takes, in bytes.
    pub(crate) fn max_datagram(&mut self, now: Duration) -> usize {
        self.path_limit = self.path_limit.filter(|(_, until)| now < *until);
        self.path_limit.map_or(MAX_UDP_PAYLOAD, |(limit, _)| limit)
    }

    /// Records an authenticated message from this peer, whose id is `id`. May raise a question about the
    /// route back. If the peer has moved, returns its former address, if it had one.
    pub(crate) fn record_received(
        &mut self,
        id: usize,
        datagram: &Datagram<'_>,
        questions: &mut RouteQuestions,
        now: Duration,
    ) -> Option<Option<SocketAddr>> {
        self.rx_bytes += datagram.bytes.len() as u64;
        self.timers.authenticated_received(now);
        let to = datagram.from;
        let former = self.address();
        let is_elsewhere = former != Some(to);
        let way = datagram.arrival.map(|arrival| Way {
            to,
            arrival,
            routes: questions.routes,
        });
        if !is_elsewhere && self.return_route.is_known(way) {
            return None;
        }
        if self.direct.is_some() {
            // Data goes where the path is.
            return None;
        }
        if is_elsewhere {
            self.path_limit = None;
        }
        let is_awaited = self.initiation.is_some();
        let is_under_way = self.return_route.has_left(way, is_awaited, now);
        if is_under_way && !is_elsewhere {
            return None;
        }
        let source = match is_under_way {
            true => None,
            false => self.source_for(id, way, questions, now),
        };
        self.endpoint = Some(Endpoint {
            address: to,
            source,
        });
        is_elsewhere.then_some(former)
    }

    /// The source address after a datagram that has come by `way`. May raise a question.
    fn source_for(
        &mut self,
        id: usize,
        way: Option<Way>,
        questions: &mut RouteQuestions,
        now: Duration,
    ) -> Option<IpAddr> {
        match self.return_route.follow(id, way, questions, now) {
            Until::Sticky => way.map(|way| way.arrival.address),
            Until::Kernel => None,
            Until::Unchanged => self.endpoint.and_then(|endpoint| endpoint.source),
        }
    }

    /// Returns whether messages can be sent to it: directly, or by a hub.
    pub(crate) fn is_reachable(&self) -> bool {
        self.endpoint.is_some() || self.direct.is_some()
    }

    /// The address of the peer's endpoint.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.endpoint.map(|endpoint| endpoint.address)
    }

    /// Unpins the source address, so that the kernel chooses it until the peer sends again.
    pub(crate) fn forget_source(&mut self) {
        self.return_route.forget();
        self.unpin();
    }

    /// Unpins the source address for the handshake that follows: until it is over, only another address is pinned.
    pub(crate) fn leave_source(&mut self) {
        self.return_route.leave();
        self.unpin();
    }

    fn unpin(&mut self) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.source = None;
        }
    }

    /// The state without the allowed IPs; `now` and `wall` are the same moment by both clocks.
    pub(crate) fn snapshot(&mut self, now: Duration, wall: SystemTime) -> PeerSnapshot {
        let is_connected = self.sessions.current().is_some_and(|s| s.is_alive(now));
        let is_awaiting = self.initiation.is_some();
        let is_late = self.timers.is_answer_late(now);
        let handshakes = self
            .contact
            .handshakes(is_connected, is_awaiting, is_late, (now, wall));
        PeerSnapshot {
            public_key: self.public_key,
            preshared_key: self.preshared_key.as_deref().cloned(),
            endpoint: self.endpoint.map(|e| e.address),
            relay: self.relayed.map(|it| it.address),
            last_handshake: self.contact.latest(now, wall),
            handshakes,
            persistent_keepalive: self.timers.persistent_interval(),
            rx_bytes: self.rx_bytes,
            tx_bytes: self.tx_bytes,
            rx_packets: self.rx_packets,
            tx_packets: self.tx_packets,
            allowed_ips: Vec::new(),
        }
    }
}
