//! One interface with all its peers.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use slab::Slab;

use crate::{
    allowed_ips::AllowedIps,
    config::{PublicKey, Snapshot},
    counters::{Counters, DropReason},
    deadlines::Deadlines,
    noise::{CONTROL_BYTES, DATA_OVERHEAD, Identity},
    peer::{Endpoint, Peer},
    replies::Replies,
    sources::Sources,
};

/// Most handshake messages, cookies and keepalives waiting for [`Node::poll_control`].
const CONTROL_DATAGRAMS: usize = 4096;
/// How many of them may be there for a cookie reply to be added.
const COOKIE_REPLIES: usize = CONTROL_DATAGRAMS / 4;
/// Bound of their memory in bytes.
pub const CONTROL_QUEUE_BYTES: usize =
    CONTROL_DATAGRAMS * (size_of::<Control>() + CONTROL_BYTES.next_power_of_two());
/// How long a path is believed to take no longer datagrams: as long as the kernel believes it.
const PATH_LIMIT_TIME: Duration = Duration::from_secs(600);
/// The MTU until one is told, in bytes: what `wg-quick` sets on a link of 1,500.
const DEFAULT_MTU: u16 = 1420;

/// Where a datagram is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The peer's endpoint.
    pub to: SocketAddr,
    /// The local address to send from, if the peer was heard on one.
    pub from: Option<IpAddr>,
    /// The two ECN bits for the outer header.
    pub ecn: u8,
}

/// A datagram that must not wait behind bulk data.
#[derive(Clone, Debug)]
pub struct Control {
    /// Where it goes.
    pub transmit: Transmit,
    /// The UDP payload.
    pub datagram: Bytes,
    /// A cookie reply, to an address that has proved nothing: to be sent once or not at all.
    pub is_cookie: bool,
}

/// Peers by what is chosen here at random, so that nobody else can choose keys that collide.
#[expect(
    clippy::disallowed_types,
    reason = "the one map whose keys no peer and no attacker chooses"
)]
type ByIndex = rustc_hash::FxHashMap<u32, usize>;

/// The state machine of one interface.
#[derive(Debug)]
pub struct Node {
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) peers: Slab<Peer>,
    pub(crate) by_key: HashMap<PublicKey, usize>,
    /// By [`crate::noise::Noise::index`].
    pub(crate) by_index: ByIndex,
    pub(crate) allowed_ips: AllowedIps<usize>,
    pub(crate) deadlines: Deadlines,
    /// Peers with held packets whose session is there.
    pub(crate) ready: VecDeque<usize>,
    /// Bytes held for all peers together.
    pub(crate) held_bytes: usize,
    pub(crate) mtu: u16,
    pub(crate) is_up: bool,
    pub(crate) counters: Counters,
    pub(crate) sources: Sources,
    /// For packets that the stack buffer is too short for.
    pub(crate) jumbo: Vec<u8>,
    pub(crate) control: VecDeque<Control>,
    /// Peers whose source address is to be asked about.
    pub(crate) source_questions: VecDeque<usize>,
    /// Counts changes of routes.
    pub(crate) routes: u32,
    pub(crate) replies: Replies,
    pub(crate) added: u64,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            identity: None,
            peers: Slab::new(),
            by_key: HashMap::new(),
            by_index: ByIndex::default(),
            allowed_ips: AllowedIps::default(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            held_bytes: 0,
            mtu: DEFAULT_MTU,
            is_up: true,
            counters: Counters::default(),
            sources: Sources::default(),
            jumbo: Vec::new(),
            control: VecDeque::new(),
            source_questions: VecDeque::new(),
            routes: 0,
            replies: Replies::default(),
            added: 0,
        }
    }
}

impl Node {
    /// Sets the interface's MTU in bytes: padding never passes it.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    /// The link was set up or down; it is up at first.
    ///
    /// While it is down nothing is sent or received. Setting it down ends all sessions, as in the
    /// reference; what guards against replayed initiations stays.
    pub fn set_link(&mut self, is_up: bool, now: Duration) {
        if self.is_up == is_up {
            return;
        }
        self.is_up = is_up;
        let ids: Vec<_> = self.by_key.values().copied().collect();
        for id in ids {
            if is_up {
                let timers = &mut self.peers[id].timers;
                timers.start(now);
                self.deadlines.arm(id, timers);
            } else {
                self.drop_held(id, DropReason::OutboundLinkDown);
                let peer = &mut self.peers[id];
                peer.clear_sessions();
                peer.timers.stop();
                peer.timers.erase_now(now);
                self.deadlines.arm(id, &mut peer.timers);
            }
        }
        if !is_up {
            self.ready.clear();
            self.control.clear();
            self.replies.clear();
        }
    }

    /// The interface's MTU in bytes, as last told.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Whether the link is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// The next datagram that must not wait.
    pub fn poll_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    /// The next packet for the TUN that the node itself sends: an ICMP error.
    pub fn poll_reply(&mut self) -> Option<Vec<u8>> {
        self.replies.pop()
    }

    /// The path to `to` refused a datagram of `len` bytes: senders of such packets are told.
    pub fn handle_too_big(&mut self, to: SocketAddr, len: usize, now: Duration) {
        for (_, peer) in &mut self.peers {
            if peer.endpoint.is_some_and(|e| e.address == to) {
                peer.path_limit = Some((below(len), now + PATH_LIMIT_TIME));
            }
        }
    }

    /// When [`Node::handle_timeout`] is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadlines.next()
    }

    /// The source address that datagrams to `to` were sent from is gone: the kernel chooses.
    pub fn forget_source(&mut self, to: SocketAddr) {
        for (_, peer) in &mut self.peers {
            if peer.endpoint.is_some_and(|e| e.address == to) {
                peer.forget_source();
            }
        }
    }

    /// Routes may have changed: the kernel chooses all source addresses anew.
    pub fn forget_sources(&mut self) {
        self.peers
            .iter_mut()
            .for_each(|(_, peer)| peer.forget_source());
    }

    /// What was counted; the event loop adds its own.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The device and its peers; `now` is the time since boot at the wall-clock time `wall`.
    ///
    /// Ports, marks and system calls are not the state machine's: the caller fills them in.
    pub fn snapshot(&mut self, now: Duration, wall: SystemTime) -> Snapshot {
        let mut peers: Vec<_> = self.peers.iter_mut().map(|(_, peer)| peer).collect();
        peers.sort_unstable_by_key(|peer| peer.added);
        Snapshot {
            private_key: self.identity.as_deref().map(Identity::private_key),
            listen_port: 0,
            fwmark: 0,
            mtu: self.mtu,
            peers: peers.into_iter().map(|p| p.snapshot(now, wall)).collect(),
            counters: self.counters.clone(),
        }
    }

    /// Queues a datagram for `peer` that must not wait behind bulk data.
    pub(crate) fn push_control(&mut self, endpoint: Endpoint, datagram: &[u8]) {
        if self.control.len() >= CONTROL_DATAGRAMS {
            self.counters.drops.add(DropReason::OutboundQueueFull, 1);
            return;
        }
        self.push(endpoint, datagram, false);
    }

    /// Queues a cookie reply; handshakes keep most of the room.
    pub(crate) fn push_cookie(&mut self, endpoint: Endpoint, reply: &[u8]) {
        if self.control.len() < COOKIE_REPLIES {
            self.counters.cookies_sent += 1;
            self.push(endpoint, reply, true);
        }
    }

    fn push(&mut self, endpoint: Endpoint, datagram: &[u8], is_cookie: bool) {
        self.control.push_back(Control {
            transmit: Transmit {
                to: endpoint.address,
                from: endpoint.local,
                ecn: 0,
            },
            datagram: Bytes::copy_from_slice(datagram),
            is_cookie,
        });
    }

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
            // The peer's initiation was answered just now, perhaps, and the answer may get lost.
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

    /// Sends an initiation that was written.
    pub(crate) fn initiate_with(
        &mut self,
        id: usize,
        initiation: &[u8; CONTROL_BYTES],
        now: Duration,
    ) {
        let peer = &mut self.peers[id];
        let (Some(endpoint), Some(keys)) = (peer.endpoint, peer.keys.as_mut()) else {
            return;
        };
        if !peer.timers.may_initiate(now) {
            // boringtun waits for a response that cannot come: the next initiation ends that.
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

    /// Sends an empty data message, or begins a handshake if there is no session to send it in.
    pub(crate) fn send_keepalive(&mut self, id: usize, now: Duration) {
        let peer = &mut self.peers[id];
        // Without an endpoint or a key nothing is sent, but the next attempt comes.
        peer.timers.traversed(now);
        self.deadlines.arm(id, &mut peer.timers);
        let Some(endpoint) = peer.endpoint else {
            return;
        };
        let Some(keys) = peer.sending_keys(now) else {
            return self.initiate(id, now, false);
        };
        let mut buffer = [0; CONTROL_BYTES];
        let Some(keepalive) = keys.noise.seal(&[], &mut buffer) else {
            keys.sessions.forget_current();
            return self.initiate(id, now, false);
        };
        let is_old = keys.sessions.count_sent(now);
        let len = keepalive.len();
        peer.tx_bytes += len as u64;
        peer.timers.authenticated_sent(now);
        self.deadlines.arm(id, &mut peer.timers);
        self.check_source(id, now);
        self.push_control(endpoint, &buffer[..len]);
        if is_old {
            self.initiate(id, now, false);
        }
    }
}

/// The longest datagram that the next smaller kind of path takes, if one of `len` bytes did not
/// pass (RFC 1191 §7.1).
fn below(len: usize) -> usize {
    const PATH_MTUS: [usize; 10] = [
        32_000, 17_914, 8_166, 4_352, 2_002, 1_500, 1_492, 1_400, 1_280, 576,
    ];
    const OUTER_HEADERS: usize = 48;
    /// With the least packet that IPv4 must carry whole (RFC 791).
    const LEAST_DATAGRAM: usize = 68 + DATA_OVERHEAD;
    let mut datagrams = PATH_MTUS.into_iter().map(|mtu| mtu - OUTER_HEADERS);
    datagrams
        .find(|datagram| *datagram < len)
        .unwrap_or(len.saturating_sub(1))
        .max(LEAST_DATAGRAM)
}

/// Up to a third of a second, so that two peers do not go on colliding.
pub(crate) fn jitter() -> Duration {
    rand::random_range(Duration::ZERO..=crate::timers::JITTER)
}
