//! Peers that are met through another one, their hub.

use serde::{Deserialize, Serialize};

/// A peer that is met through a hub, and the path to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DirectPeer {
    /// In base64.
    pub public_key: String,
    /// Address inside the tunnel.
    pub address: String,
    /// The path that data takes.
    pub path: DataPath,
    /// Address and port to which data goes, directly or by this side's relay; absent if it goes by the hub.
    pub remote: Option<String>,
    /// Origin of this address: `host` is the peer's own, `mapped` its router's by port mapping, `reflexive` its router's
    /// as a STUN server saw it, `learnt` the one that it was heard from; `relayed` if a relay is on the path.
    pub kind: Option<String>,
    /// Round trip of this path in microseconds, once measured.
    pub round_trip_us: Option<u64>,
    /// Reason why there is no direct path, in one word: `idle`, `meeting`, `no_answer`, `no_candidates`, `unreachable`,
    /// `slower_than_hub`, `unanswered`, `one_way`, `address_vanished` or `relay_lost`.
    pub why: Option<String>,
    /// Round trip by the hub in microseconds, once measured.
    pub hub_round_trip_us: Option<u64>,
    /// Seconds since the last handshake with the peer; absent if there was none.
    pub handshake_age: Option<u64>,
    /// Bytes of datagrams received, without those by the hub.
    pub rx_bytes: u64,
    /// Bytes of datagrams sent, without those by the hub.
    pub tx_bytes: u64,
    /// Packets that left by the hub.
    pub packets_by_hub: u64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probes that were answered.
    pub probes_answered: u64,
}

/// The path that data to a peer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DataPath {
    /// Straight to the peer.
    Direct,
    /// By a relay, the peer's or this side's.
    Relay,
    /// By the hub.
    #[default]
    Hub,
}
