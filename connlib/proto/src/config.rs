//! The configuration of the device, and the state that can be read back.
//!
//! The types mirror the WireGuard cross-platform interface (UAPI) key by key, but are already parsed:
//! text never reaches the state machine.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

pub use convoy_types::{
    AllowedIpUpdate, Authorities, CandidateKind, DeviceUpdate, DirectPath, DirectPeer,
    DirectStatus, Directs, Password, PeerUpdate, Prefix, PresharedKey, PrivateKey, PublicKey,
    Relay, RelayAddress, RelayState, RelayStatus, RelayTransport, WhyNotDirect,
};

use crate::counters::Counters;

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
    /// Peers that are met through a hub.
    pub directs: Vec<DirectStatus>,
    /// TURN servers.
    pub relays: Vec<RelayStatus>,
    /// The outer tunnel, if this one goes through another.
    pub outer: Option<Box<Self>>,
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
    /// The TURN server that carries its data, if it cannot be reached directly.
    pub relay: Option<RelayAddress>,
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
    pub allowed_ips: Vec<Prefix>,
}

impl PeerSnapshot {
    /// A peer with which nothing has happened yet.
    #[must_use]
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            preshared_key: None,
            endpoint: None,
            relay: None,
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

    #[test]
    fn host_bits_of_allowed_ips_do_not_count() {
        let change = |network: &str, remove| AllowedIpUpdate {
            network: network.parse().unwrap(),
            remove,
        };
        let mut peer = PeerUpdate::new(PublicKey([7; 32]));
        let added = ["10.1.2.3/8", "10.3.2.1/8", "fd00::1/64", "192.0.2.1/24"];
        peer.allowed_ips = added.map(|it| change(it, false)).into();
        peer.allowed_ips.push(change("192.0.2.9/24", true));
        let update = DeviceUpdate {
            private_key: Some(Some(PrivateKey([0xa5; 32]))),
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        let mut node = crate::Node::default();
        node.apply(crate::Planner::default().plan(update), Duration::ZERO);
        let snapshot = node.snapshot(Duration::ZERO, SystemTime::now());
        let found = snapshot.peers[0].allowed_ips.iter().map(Prefix::to_string);
        assert_eq!(found.collect::<Vec<_>>(), ["10.0.0.0/8", "fd00::/64"]);
    }
}
