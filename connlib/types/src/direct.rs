//! Direct paths to peers that are met through a hub.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::{CandidateKind, Prefix, PresharedKey, PublicKey};

/// Most peers with direct paths in one tunnel.
pub const MAX_DIRECT_PEERS: usize = 64;

/// The direct paths of a tunnel, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directs {
    /// Addresses of this machine inside the tunnel.
    pub own: Vec<IpAddr>,
    /// The peers, [`MAX_DIRECT_PEERS`] at most.
    pub peers: Vec<DirectPeer>,
    /// Addresses of this machine outside of the tunnel, most useful first.
    pub hosts: Vec<IpAddr>,
    /// Addresses at which routers forward to this machine.
    pub mapped: Vec<SocketAddr>,
    /// STUN servers.
    pub stun: Vec<SocketAddr>,
}

/// A peer that is met through a hub, which carries its data while there is no direct path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectPeer {
    /// Its identity.
    pub public_key: PublicKey,
    /// The preshared key of the session with it.
    pub preshared_key: Option<PresharedKey>,
    /// The identity of the hub, an ordinary peer of the tunnel.
    pub hub: PublicKey,
    /// The prefixes that are the peer's, all of them within the hub's. The first is its address inside the tunnel.
    pub allowed_ips: Vec<Prefix>,
}

/// The state of a peer with a direct path, or without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectStatus {
    /// The peer's identity.
    pub public_key: PublicKey,
    /// Its address inside the tunnel.
    pub address: IpAddr,
    /// The identity of its hub.
    pub hub: PublicKey,
    /// The path that data takes, or why there is none but by the hub.
    pub path: Result<DirectPath, WhyNotDirect>,
    /// Round trip by the hub, once measured.
    pub hub_round_trip: Option<Duration>,
    /// Time since the last handshake with the peer.
    pub last_handshake: Option<Duration>,
    /// Bytes received on direct paths.
    pub rx_bytes: u64,
    /// Bytes sent on direct paths.
    pub tx_bytes: u64,
    /// Packets that left by the hub for want of a direct path.
    pub packets_by_hub: u64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probes answered by the peer.
    pub probes_answered: u64,
}

/// A direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectPath {
    /// The peer's address.
    pub remote: SocketAddr,
    /// How the address came to be known.
    pub kind: CandidateKind,
    /// Its round trip, once measured.
    pub round_trip: Option<Duration>,
}

/// Why there is no direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNotDirect {
    /// There was no data for the peer, or none for minutes.
    Idle,
    /// The two are trying to meet.
    Meeting,
    /// The peer does not answer handshakes by the hub: it is off, runs stock WireGuard, or does not know of this one.
    NoAnswer,
    /// The peer has a session, but tells no addresses.
    NoCandidates,
    /// None of the peer's addresses answers.
    Unreachable,
    /// The peer answers by a relay alone, and the hub is faster.
    SlowerThanHub,
    /// The path's handshakes went unanswered.
    Unanswered,
    /// The peer called by the hub, or again and again, as if it heard nothing on the path.
    OneWay,
    /// The local address of the path has gone.
    AddressVanished,
    /// This side's relay has ended the path.
    RelayLost,
}

impl WhyNotDirect {
    /// Names the reason in one word, for JSON and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Meeting => "meeting",
            Self::NoAnswer => "no_answer",
            Self::NoCandidates => "no_candidates",
            Self::Unreachable => "unreachable",
            Self::SlowerThanHub => "slower_than_hub",
            Self::Unanswered => "unanswered",
            Self::OneWay => "one_way",
            Self::AddressVanished => "address_vanished",
            Self::RelayLost => "relay_lost",
        }
    }
}
