//! A daemon's counters: the type that `convoy stats --json` prints and every reader parses.
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
mod query;

pub use counters::{Counters, Traffic};
pub use query::{QueryError, REQUEST, answer, json_of, query};

use serde::{Deserialize, Serialize};

/// The counters of a daemon since its start; contains no secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The daemon's version.
    pub version: String,
    /// The interface for which the daemon was started.
    pub interface: String,
    /// Sums over all peers.
    pub counters: Counters,
    /// One entry per peer.
    pub peers: Vec<Peer>,
}

/// One peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// In base64, as `wg` shows it.
    pub public_key: String,
    /// Address and port.
    pub endpoint: Option<String>,
    /// In seconds since 1970-01-01 UTC.
    pub latest_handshake: Option<u64>,
    /// Bytes of datagrams, as `wg` shows them.
    pub rx_bytes: u64,
    /// Bytes of datagrams, as `wg` shows them.
    pub tx_bytes: u64,
    /// Packets received from this peer.
    pub rx_packets: u64,
    /// Packets sent to this peer.
    pub tx_packets: u64,
}
