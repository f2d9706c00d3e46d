//! One interface with all its peers.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_aead::Aead;
use convoy_noise::{HandshakeLimiter, Identity, Tai64n};
use convoy_types::Datagram;
use slab::Slab;

use crate::{
    allowed_ips::AllowedIps,
    by_address::ByAddress,
    config::PublicKey,
    control::{ControlDatagram, ControlQueue},
    counters::{Counters, DropReason},
    deadlines::Deadlines,
    direct::Directs,
    followed::Followed,
    held::HeldPackets,
    messages::{DATA_OVERHEAD, index_at},
    mss::MssClamp,
    peer::{Endpoint, Peer},
    randomness::Randomness,
    relays::Relays,
    replies::Replies,
    return_route::RouteQuestions,
    sessions::Ended,
};

/// Time for which the limit of a path is remembered, as long as the kernel remembers a path MTU.
const PATH_LIMIT_TIME: Duration = Duration::from_secs(600);
/// The MTU in bytes before [`Node::set_mtu`]: the one that `wg-quick` sets over an uplink of 1,500.
const DEFAULT_MTU: u16 = 1420;

/// Peers by session index. This side draws the indices at random, so no peer can make them collide.
#[expect(
    clippy::disallowed_types,
    reason = "the only map whose keys neither peers nor attackers choose"
)]
pub(crate) type ByIndex = rustc_hash::FxHashMap<u32, usize>;

/// Peers that one slice of a change of the link concerns.
const PEERS_PER_SLICE: usize = 64;

/// A change of the link that has not reached these peers yet.
#[derive(Debug)]
pub struct LinkChange {
    peers: Vec<usize>,
}

/// The state machine of one interface.
#[derive(Debug)]
pub struct Node {
    /// Seals and opens data messages.
    pub(crate) aead: Aead,
    pub(crate) identity: Option<Box<Identity>>,
    /// Boxed, because moving all of them as the slab grows would take longer than a tick may.
    pub(crate) peers: Slab<Box<Peer>>,
    pub(crate) by_key: HashMap<PublicKey, usize>,
    /// Peers by [`Peer::added`].
    pub(crate) by_age: BTreeMap<u64, usize>,
    /// Peers by the local indices of their sessions and of initiations that await a response.
    pub(crate) by_index: ByIndex,
    pub(crate) by_address: ByAddress,
    /// Whether keys have ended since the last [`Self::take_keys_ended`].
    pub(crate) keys_ended: bool,
    pub(crate) allowed_ips: AllowedIps<usize>,
    pub(crate) deadlines: Deadlines,
    pub(crate) followed: Followed,
    pub(crate) directs: Directs,
    /// `None` without TURN servers: then no code of theirs runs.
    pub(crate) relays: Option<Box<Relays>>,
    /// Peers with held packets and a session to send them in, or former ones.
    pub(crate) ready: VecDeque<usize>,
    pub(crate) held: HeldPackets,
    pub(crate) mtu: u16,
    pub(crate) mss_clamp: MssClamp,
    pub(crate) is_up: bool,
    pub(crate) counters: Counters,
    pub(crate) handshake_limiter: HandshakeLimiter,
    /// A buffer for packets that are too long for the stack buffer.
    pub(crate) jumbo: Vec<u8>,
    pub(crate) control: ControlQueue,
    pub(crate) questions: RouteQuestions,
    pub(crate) replies: Replies,
    /// The number of peers added so far.
    pub(crate) added: u64,
    pub(crate) randomness: Randomness,
    /// The wall-clock time at which `now` was zero, since the Unix epoch.
    wall_clock: Duration,
}

impl Default for Node {
    fn default() -> Self {
        Self::new(Aead::ring())
    }
}

impl Node {
    /// A node without keys and peers, whose link is up.
    #[must_use]
    pub fn new(aead: Aead) -> Self {
        Self {
            aead,
            identity: None,
            peers: Slab::new(),
            by_key: HashMap::new(),
            by_age: BTreeMap::new(),
            by_index: ByIndex::default(),
            by_address: ByAddress::default(),
            keys_ended: false,
            allowed_ips: AllowedIps::default(),
            deadlines: Deadlines::default(),
            followed: Followed::default(),
            directs: Directs::default(),
            relays: None,
            ready: VecDeque::new(),
            held: HeldPackets::default(),
            mtu: DEFAULT_MTU,
            mss_clamp: MssClamp::default(),
            is_up: true,
            counters: Counters::default(),
            handshake_limiter: HandshakeLimiter::default(),
            jumbo: Vec::new(),
            control: ControlQueue::default(),
            questions: RouteQuestions::default(),
            replies: Replies::default(),
            added: 0,
            randomness: Randomness::default(),
            wall_clock: Duration::ZERO,
        }
    }
}

impl Node {
    /// A node that takes its random bytes from `fill`, which returns whether it could; the default
    /// takes them from the operating system.
    #[must_use]
    pub fn with_randomness(fill: impl FnMut(&mut [u8]) -> bool + Send + 'static) -> Self {
        Self {
            randomness: Randomness::new(fill),
            ..Self::default()
        }
    }

    /// Sets the wall-clock time of boot, as the time since the Unix epoch. Initiations carry the wall-clock time.
    ///
    /// Ignores a time earlier than the last: peers would take the initiations for replays.
    pub fn set_wall_clock(&mut self, boot: Duration) {
        self.wall_clock = self.wall_clock.max(boot);
    }

    /// Returns whether [`Node::drain_held`] has anything to do.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether keys have ended since the last call; if so, wipe their traces from the stack.
    #[must_use]
    pub fn take_keys_ended(&mut self) -> bool {
        std::mem::take(&mut self.keys_ended)
    }

    /// The AEAD of data messages.
    #[must_use]
    pub fn aead(&self) -> Aead {
        self.aead
    }

    /// Sets the interface's MTU in bytes, which bounds padding and the sizes of [`Self::set_clamp_mss`].
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.mss_clamp.mtu = mtu;
    }

    /// Sets whether TCP handshakes are changed, in both directions, so that neither end announces a longer
    /// segment than the MTU carries; initially they are not. Without [`Self::set_mtu`] none is changed.
    pub fn set_clamp_mss(&mut self, is_on: bool) {
        self.mss_clamp.is_on = is_on;
    }

    /// Sets the link up or down; initially it is up.
    ///
    /// While it is down, the node neither sends nor receives. Setting it down ends all sessions, as
    /// in the reference, but keeps the guard against replayed initiations.
    pub fn set_link(&mut self, is_up: bool, now: Duration) {
        let mut change = self.begin_link(is_up);
        while !self.link_slice(&mut change, now) {}
    }

    /// The same in slices: call [`Self::link_slice`] until it returns true.
    pub fn begin_link(&mut self, is_up: bool) -> LinkChange {
        let mut peers = Vec::new();
        if self.is_up != is_up {
            peers.extend(self.by_key.values());
            peers.extend(self.direct_ids());
        }
        self.is_up = is_up;
        if !is_up {
            self.reset_relays();
            self.ready.clear();
            let (control, replies) = (self.control.clear(), self.replies.clear());
            let drops = &mut self.counters.drops;
            drops.add(DropReason::OutboundLinkDown, control as u64);
            drops.add(DropReason::InboundReplyLost, replies as u64);
        }
        LinkChange { peers }
    }

    /// Starts or stops some peers. Returns whether none is left.
    pub fn link_slice(&mut self, change: &mut LinkChange, now: Duration) -> bool {
        let first = change.peers.len().saturating_sub(PEERS_PER_SLICE);
        for id in change.peers.drain(first..) {
            if self.is_up {
                let timers = &mut self.peers[id].timers;
                timers.start(now);
                self.deadlines.arm(id, timers);
            } else {
                self.drop_held(id, DropReason::OutboundLinkDown);
                self.peers[id].is_ready = false;
                self.end_sessions(id);
                self.peers[id].timers.stop();
                self.reset_direct(id, now);
            }
        }
        change.peers.is_empty()
    }

    /// The interface's MTU in bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Returns whether TCP handshakes are changed, as set by [`Self::set_clamp_mss`].
    #[must_use]
    pub fn clamps_mss(&self) -> bool {
        self.mss_clamp.is_on
    }

    /// Returns whether the link is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Returns the next datagram of an address family to send ahead of bulk data.
    pub fn poll_control(&mut self, is_ipv4: bool) -> Option<ControlDatagram> {
        self.control.pop(is_ipv4)
    }

    /// Returns whether some peer has an IPv4 endpoint, or else an IPv6 one.
    #[must_use]
    pub fn has_peers_over(&self, is_ipv4: bool) -> bool {
        self.by_address.has_some(is_ipv4) || self.has_relays_over(is_ipv4)
    }

    /// Returns the next packet that the node itself sends to the TUN: an ICMP error.
    pub fn poll_reply(&mut self) -> Option<Vec<u8>> {
        self.replies.pop()
    }

    /// Call when a datagram of `len` bytes was too long for the path to `to`. For ten minutes, packets as
    /// long are dropped and their senders get ICMP errors.
    pub fn handle_too_big(&mut self, to: SocketAddr, len: usize, now: Duration) {
        for id in self.by_address.peers_at(to) {
            self.peers[id].path_limit = Some((below(len), now + PATH_LIMIT_TIME));
        }
        if self.relays.is_some() {
            self.limit_relayed(to, below(len), now + PATH_LIMIT_TIME);
        }
    }

    /// Returns whether `message`, of which the first eight bytes suffice, is that of a data message to a peer at `to`:
    /// it has the index of one of the peer's sessions, which only those on the way know.
    #[must_use]
    pub fn has_sent(&self, to: SocketAddr, message: &[u8]) -> bool {
        let is_data = message.len() >= 8 && message[..4] == [4, 0, 0, 0];
        let of = |id: usize| self.peers[id].sessions.have_remote(index_at(message, 4));
        is_data && self.by_address.peers_at(to).any(of)
    }

    /// Returns whether a peer's endpoint is at this address.
    #[must_use]
    pub fn has_peer_at(&self, address: IpAddr) -> bool {
        self.by_address.peers_of(address).next().is_some()
    }

    /// Returns when to call [`Node::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadlines.next()
    }

    /// The counters of the state machine; the event loop adds its own.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Queues a datagram to be sent ahead of bulk data.
    pub(crate) fn push_control(&mut self, endpoint: Endpoint, datagram: &[u8]) {
        // Timers may still run between the slices of a link that goes down, whose sockets are closed.
        if !self.is_up {
            self.counters.drops.add(DropReason::OutboundLinkDown, 1);
        } else if !self.control.push(endpoint.destination(0), datagram) {
            self.counters.drops.add(DropReason::OutboundQueueFull, 1);
        }
    }

    /// Queues a message to the peer, which goes by the hub if the peer has no endpoint.
    pub(crate) fn push_message(
        &mut self,
        id: usize,
        endpoint: Option<Endpoint>,
        message: &[u8],
        now: Duration,
    ) {
        match endpoint {
            Some(_) if self.peers[id].relayed.is_some() => self.send_by_relay(id, message, now),
            Some(endpoint) => self.push_control(endpoint, message),
            None => self.send_by_hub(id, message, now),
        }
    }

    /// Queues a cookie reply, or drops it if many wait.
    pub(crate) fn push_cookie(&mut self, endpoint: Endpoint, reply: &[u8]) {
        if self.control.push_cookie(endpoint.destination(0), reply) {
            self.counters.cookies_sent += 1;
        } else {
            self.counters.drops.add(DropReason::OutboundCookieLost, 1);
        }
    }

    /// Queues the peer's held packets for [`Self::drain_held`]: it has a session.
    pub(crate) fn release_held(&mut self, id: usize) {
        let peer = &mut self.peers[id];
        if !self.held.is_empty(id) && !peer.is_ready {
            peer.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Drops the peer's held packets.
    pub(crate) fn drop_held(&mut self, id: usize, reason: DropReason) {
        let dropped = self.held.clear(id);
        self.counters.drops.add(reason, dropped as u64);
    }

    /// The timestamp of an initiation sent now.
    pub(crate) fn stamp(&self, now: Duration) -> Tai64n {
        Tai64n::at(self.wall_clock + now)
    }

    /// Ends the peer's sessions and its handshake, and wipes their keys.
    pub(crate) fn end_sessions(&mut self, id: usize) {
        self.stop_awaiting(id);
        let peer = &mut self.peers[id];
        peer.contact.ended();
        peer.return_route.settle();
        let ended = peer.sessions.clear();
        self.forget_indices(ended);
    }

    /// Gives up the initiation that awaits the peer's response.
    pub(crate) fn stop_awaiting(&mut self, id: usize) {
        let initiation = self.peers[id].initiation.take();
        self.forget_indices([initiation.map(|i| i.local), None, None, None]);
    }

    /// Records an authenticated message of the peer, which may have roamed.
    pub(crate) fn record_received(&mut self, id: usize, datagram: &Datagram<'_>, now: Duration) {
        let peer = &mut self.peers[id];
        let moved = peer.record_received(id, datagram, &mut self.questions, now);
        if let Some(former) = moved {
            let _span = tracing::debug_span!("peer", peer = %peer.public_key).entered();
            tracing::debug!(from = ?former, to = %datagram.from, "The peer has moved");
            self.by_address.peer_moved(id, former, peer.address());
            self.followed.record_move(peer.public_key, peer.address());
            self.update_relays(now);
        }
    }

    /// Removes the indices of sessions that have ended.
    pub(crate) fn forget_indices(&mut self, ended: Ended) {
        for index in ended.into_iter().flatten() {
            self.by_index.remove(&index);
            self.keys_ended = true;
        }
    }
}

/// The next length to try after a datagram of `len` bytes was too long: the longest that the next smaller
/// common path MTU takes (RFC 1191 §7.1).
fn below(len: usize) -> usize {
    const PATH_MTUS: [usize; 10] = [
        32_000, 17_914, 8_166, 4_352, 2_002, 1_500, 1_492, 1_400, 1_280, 576,
    ];
    const OUTER_HEADERS: usize = 48;
    /// A data message with the longest packet for the smallest MTU of IPv4 (RFC 791).
    const LEAST_DATAGRAM: usize = 68 + DATA_OVERHEAD;
    let mut datagrams = PATH_MTUS.into_iter().map(|mtu| mtu - OUTER_HEADERS);
    datagrams
        .find(|datagram| *datagram < len)
        .unwrap_or(len.saturating_sub(1))
        .max(LEAST_DATAGRAM)
}
