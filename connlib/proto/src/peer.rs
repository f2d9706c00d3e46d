//! What the node knows of one peer.

use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use crate::{
    config::{AllowedIp, PeerSnapshot, PresharedKey, PublicKey},
    held::Held,
    noise::Noise,
    sessions::Sessions,
    timers::Timers,
};

/// Where a peer is, and the local address that it speaks to (the sticky source).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) local: Option<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) public_key: PublicKey,
    pub(crate) preshared_key: Option<PresharedKey>,
    /// `None` while the device has no private key.
    pub(crate) noise: Option<Noise>,
    pub(crate) sessions: Sessions,
    pub(crate) timers: Timers,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) held: VecDeque<Held>,
    pub(crate) allowed_ips: BTreeSet<AllowedIp>,
    /// Position in the order of adding.
    pub(crate) added: u64,
    pub(crate) last_handshake: Option<Duration>,
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
            noise: None,
            sessions: Sessions::default(),
            timers: Timers::default(),
            endpoint: None,
            held: VecDeque::new(),
            allowed_ips: BTreeSet::new(),
            added,
            last_handshake: None,
            rx_bytes: 0,
            tx_bytes: 0,
            rx_packets: 0,
            tx_packets: 0,
        }
    }

    /// Whether a session is there to send with.
    pub(crate) fn can_send(&mut self, now: Duration) -> bool {
        self.sessions.current().is_some_and(|s| s.can_send(now))
    }

    /// An authenticated message of `len` bytes came from `from`, sent to `local`.
    pub(crate) fn heard_from(
        &mut self,
        from: SocketAddr,
        local: Option<IpAddr>,
        len: usize,
        now: Duration,
    ) {
        self.endpoint = Some(Endpoint {
            address: from,
            local,
        });
        self.rx_bytes += len as u64;
        self.timers.authenticated_received(now);
    }

    /// `now` is the time since boot at the wall-clock time `wall`.
    pub(crate) fn snapshot(&self, now: Duration, wall: SystemTime) -> PeerSnapshot {
        PeerSnapshot {
            public_key: self.public_key,
            preshared_key: self.preshared_key.clone(),
            endpoint: self.endpoint.map(|e| e.address),
            last_handshake: self
                .last_handshake
                .map(|then| wall - now.saturating_sub(then)),
            persistent_keepalive: self.timers.persistent_interval(),
            rx_bytes: self.rx_bytes,
            tx_bytes: self.tx_bytes,
            rx_packets: self.rx_packets,
            tx_packets: self.tx_packets,
            allowed_ips: self.allowed_ips.iter().copied().collect(),
        }
    }
}
