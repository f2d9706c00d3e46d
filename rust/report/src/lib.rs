//! Reports about a tunnel: the types that `convoy stats --json` and `convoy status --json` print, and their readers.
//!
//! Every command that shows figures calls it, and the daemon and the supervisor that fill them in. It never counts
//! anything itself, holds no secret, and talks only to the daemon that [`query()`] asks, over its caller's connection.
//!
//! A daemon answers on its UAPI socket. [`REQUEST`] and a blank line request its [`Report`]; the
//! response is [`answer`]'s line of JSON, `errno=0` and a blank line.
//!
//! 1. [`query()`] asks a daemon; [`json_of`] extracts the JSON from an answer that arrived another way.
//! 2. [`Counters::since`] subtracts an earlier reading; the other methods summarise.
//!
//! A figure that a daemon does not report is absent, not zero, so a reader also accepts reports of older
//! and newer daemons.

mod counters;
mod direct;
mod figures;
#[cfg(any(test, feature = "schema"))]
pub mod golden;
mod query;
mod relay;
#[cfg(any(test, feature = "schema"))]
pub mod schema;
mod status;

pub use counters::{Counters, OuterCounters, Traffic};
pub use direct::{DataPath, DirectPeer};
pub use figures::{HISTOGRAMS, HistogramFigure, HistogramUnit};
pub use query::{QueryError, REQUEST, answer, json_of, query};
pub use relay::RelayServer;
pub use status::{
    CarriedStatus, Condition, ForwardStatus, NatStatus, PeerState, PeerStatus, PortForwardStatus,
    PortMappingStatus, Rate, STATUS_SCHEMA, Status, Statuses, ViaStatus,
};

use serde::{Deserialize, Serialize};

/// The counters of a daemon since its start; contains no secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Report {
    /// The daemon's version.
    pub version: String,
    /// The interface for which the daemon was started.
    pub interface: String,
    /// The interface's public key in base64; absent while it has none.
    pub public_key: Option<String>,
    /// The UDP port; 0 if there is none.
    pub listen_port: u16,
    /// The mark of the tunnel's datagrams; 0 for none.
    pub fwmark: u32,
    /// Packets of the last seconds; absent if they are not reported.
    pub recent: Option<Recent>,
    /// Sums over all peers, without those of the tunnel through which this one goes.
    pub counters: Counters,
    /// One entry per peer.
    pub peers: Vec<Peer>,
    /// TURN servers, one entry per address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayServer>,
    /// The tunnel through which this one goes; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer: Option<OuterReport>,
}

/// A tunnel through which another goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OuterReport {
    /// Its public key in base64; absent while it has none.
    pub public_key: Option<String>,
    /// Sums over its peers; absent if they are not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<OuterCounters>,
    /// One entry per peer.
    pub peers: Vec<Peer>,
}

/// Packets of the last seconds, in the clear.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Recent {
    /// The length of this time.
    pub milliseconds: u64,
    /// Packets that went from the TUN to the UDP socket.
    pub outbound: Traffic,
    /// Packets that went from the UDP socket to the TUN.
    pub inbound: Traffic,
}

/// One peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Peer {
    /// In base64, as `wg` shows it.
    pub public_key: String,
    /// Whether a preshared key is set.
    pub has_preshared_key: bool,
    /// Address and port.
    pub endpoint: Option<String>,
    /// Address and port of the TURN server that carries its data; absent if data goes directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// Transport to it: `udp`, `tcp` or `tls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay_transport: Option<String>,
    /// Networks, in the order in which they were added.
    pub allowed_ips: Vec<String>,
    /// In seconds; 0 for none.
    pub persistent_keepalive: u16,
    /// In seconds since 1970-01-01 UTC; absent if there was none.
    pub latest_handshake: Option<u64>,
    /// Since when there has always been a session, in seconds since 1970-01-01 UTC; absent if there is none.
    pub connected_since: Option<u64>,
    /// The time between the last answered handshake initiation of this side and its response, in microseconds.
    pub handshake_round_trip_us: Option<u64>,
    /// Whether a handshake initiation awaits its response.
    pub is_handshaking: bool,
    /// Handshake initiations without a response within 5 s, since the last handshake or change of endpoint or
    /// keys.
    pub unanswered_initiations: u32,
    /// Responses that were not authentic, since then: the preshared keys differ, or somebody forges them.
    pub unauthentic_responses: u32,
    /// Bytes of datagrams, as `wg` shows them.
    pub rx_bytes: u64,
    /// Bytes of datagrams, as `wg` shows them.
    pub tx_bytes: u64,
    /// Packets received from this peer.
    pub rx_packets: u64,
    /// Packets sent to this peer.
    pub tx_packets: u64,
    /// Peers that are met through this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectPeer>,
}
