//! The configuration of the device, and the state that can be read back.
//!
//! The types mirror the WireGuard cross-platform interface (UAPI) key by key, but are already parsed:
//! text never reaches the state machine.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::counters::Counters;

/// A Curve25519 private key; wiped from memory when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct PrivateKey(pub [u8; 32]);

/// A preshared symmetric key; wiped from memory when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct PresharedKey(pub [u8; 32]);

/// A Curve25519 public key: the identity of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(…)")
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Shows the first four bytes in hexadecimal: enough to tell peers apart in a log.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}…")
    }
}

/// An IP prefix in canonical form: the bits beyond the prefix length are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllowedIp {
    /// The network address.
    pub address: IpAddr,
    /// The prefix length in bits: 0..=32 for IPv4, 0..=128 for IPv6.
    pub prefix: u8,
}

/// One change to a peer's allowed IPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedIpUpdate {
    /// The prefix to add or remove.
    pub network: AllowedIp,
    /// Whether to remove the prefix, if this peer has it, instead of adding it.
    pub remove: bool,
}

/// One `set` request of the UAPI: applied as a whole or not at all.
#[derive(Clone, Debug, Default)]
pub struct DeviceUpdate {
    /// `Some(None)` removes the private key, which stops the device.
    pub private_key: Option<Option<PrivateKey>>,
    /// The UDP port to listen on; 0 lets the kernel choose.
    pub listen_port: Option<u16>,
    /// The firewall mark of the UDP sockets; 0 clears it.
    pub fwmark: Option<u32>,
    /// Whether to remove all peers before applying `peers`.
    pub replace_peers: bool,
    /// Changes to peers, applied in order.
    pub peers: Vec<PeerUpdate>,
}

/// The changes to one peer within a [`DeviceUpdate`].
#[derive(Clone, Debug)]
pub struct PeerUpdate {
    /// The peer's identity.
    pub public_key: PublicKey,
    /// Whether to remove the peer; the other fields are then ignored.
    pub remove: bool,
    /// Whether to ignore the update if there is no such peer yet.
    pub update_only: bool,
    /// `Some(None)` removes the preshared key.
    pub preshared_key: Option<Option<PresharedKey>>,
    /// The address to send datagrams to, until an authentic one comes from another address.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between persistent keepalives; 0 turns them off.
    pub persistent_keepalive: Option<u16>,
    /// Whether to clear the allowed IPs before applying `allowed_ips`.
    pub replace_allowed_ips: bool,
    /// Changes to the allowed IPs, applied in order.
    pub allowed_ips: Vec<AllowedIpUpdate>,
}

impl PeerUpdate {
    /// An update that changes nothing, but creates the peer if it does not exist.
    #[must_use]
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            remove: false,
            update_only: false,
            preshared_key: None,
            endpoint: None,
            persistent_keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }
}

/// The device and its peers at one moment: the answer to a `get` request of the UAPI.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The device's private key, if one is set.
    pub private_key: Option<PrivateKey>,
    /// Its public key.
    pub public_key: Option<PublicKey>,
    /// The port of the UDP sockets, or the one they will use once the link is up; 0 if there is none.
    pub listen_port: u16,
    /// The firewall mark; 0 for none.
    pub fwmark: u32,
    /// The MTU of the interface, in bytes.
    pub mtu: u16,
    /// All peers, in the order in which they were added.
    pub peers: Vec<PeerSnapshot>,
    /// The counts of the data path since its start.
    pub counters: Counters,
    /// The traffic of the last seconds, which they include.
    pub recent: RecentTraffic,
}

/// One peer at one moment.
#[derive(Clone, Debug)]
pub struct PeerSnapshot {
    /// The peer's identity.
    pub public_key: PublicKey,
    /// The preshared key, if one is set.
    pub preshared_key: Option<PresharedKey>,
    /// The source address of the peer's last authentic datagram, or the configured endpoint.
    pub endpoint: Option<SocketAddr>,
    /// When the last handshake completed.
    pub last_handshake: Option<SystemTime>,
    /// Facts about the peer that its handshakes tell.
    pub handshakes: Handshakes,
    /// The persistent keepalive interval; zero for none.
    pub persistent_keepalive: Duration,
    /// Bytes of authentic datagrams received, handshakes included.
    pub rx_bytes: u64,
    /// Bytes of datagrams queued for sending, handshakes included; a datagram that the kernel then refuses
    /// stays counted.
    pub tx_bytes: u64,
    /// Authentic datagrams received that carried a packet.
    pub rx_packets: u64,
    /// Datagrams with a packet that were queued for sending, counted likewise.
    pub tx_packets: u64,
    /// The allowed IPs, in the order in which they were last added.
    pub allowed_ips: Vec<AllowedIp>,
}

impl PeerSnapshot {
    /// A peer with which nothing has happened yet.
    #[must_use]
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            preshared_key: None,
            endpoint: None,
            last_handshake: None,
            handshakes: Handshakes::default(),
            persistent_keepalive: Duration::ZERO,
            rx_bytes: 0,
            tx_bytes: 0,
            rx_packets: 0,
            tx_packets: 0,
            allowed_ips: Vec::new(),
        }
    }
}

/// Facts about a peer that its handshakes tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Since when there has always been a session; `None` if there is none.
    pub connected_since: Option<SystemTime>,
    /// The time between the last initiation of this side that was answered and its response.
    pub round_trip: Option<Duration>,
    /// Whether an initiation awaits its response.
    pub is_awaiting: bool,
    /// Initiations without a response within 5 s, since the last handshake or change of endpoint or keys.
    pub unanswered: u32,
    /// Responses that were not authentic, since then: the preshared keys differ, or somebody forges them.
    pub unauthentic: u32,
}

/// Packets in the clear of the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentTraffic {
    /// The length of this time.
    pub time: Duration,
    /// Packets from the TUN to the peers.
    pub outbound_packets: u64,
    /// Their bytes.
    pub outbound_bytes: u64,
    /// Packets from the peers to the TUN.
    pub inbound_packets: u64,
    /// Their bytes.
    pub inbound_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_type_that_holds_a_secret_key_prints_it() {
        let preshared_key = Some(PresharedKey([0xa5; 32]));
        let mut peer = PeerUpdate::new(PublicKey([7; 32]));
        peer.preshared_key = Some(preshared_key.clone());
        let update = DeviceUpdate {
            private_key: Some(Some(PrivateKey([0xa5; 32]))),
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        let mut planner = crate::Planner::default();
        let plan = planner.plan(update.clone());
        let before = format!("{update:?} {update:#?} {plan:?} {planner:?}");
        let mut node = crate::Node::default();
        node.apply(plan, Duration::ZERO);
        let snapshot = node.snapshot(Duration::ZERO, SystemTime::now());
        assert_eq!(snapshot.peers[0].preshared_key, preshared_key);
        let printed = format!("{before} {snapshot:?} {snapshot:#?} {node:?}");
        assert!(printed.contains("07070707"), "{printed}");
        for form in ["165, 165", "a5a5", "A5A5", "165,\n"] {
            assert!(!printed.contains(form), "{form} in {printed}");
        }
    }
}
