//! What `convoy stats --json` prints.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_proto::{
    config::{PeerSnapshot, Snapshot},
    counters::{Counters, DropReason},
};
use serde::{Deserialize, Serialize};

/// What a daemon has counted since it was started; holds no secret.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The daemon's version.
    pub(super) version: String,
    /// The interface that the daemon was started for.
    pub(super) interface: String,
    /// Sums over all peers.
    pub(super) counters: CountersReport,
    /// One entry a peer.
    pub(super) peers: Vec<PeerReport>,
}

/// Sums over all peers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CountersReport {
    /// Packets that went from the TUN to the UDP socket.
    pub(super) outbound: Traffic,
    /// Packets that went from the UDP socket to the TUN.
    pub(super) inbound: Traffic,
    /// By name; entry `v` of each is how often the value `v` was seen.
    pub(super) histograms: BTreeMap<String, Vec<u64>>,
    /// By reason; every reason is there.
    pub(super) drops: BTreeMap<String, u64>,
    /// By name.
    pub(super) syscalls: BTreeMap<String, u64>,
    /// Turns of the event loop.
    pub(super) ticks: u64,
    /// Handshakes completed.
    pub(super) handshakes: u64,
    /// Cookie replies sent.
    pub(super) cookies_sent: u64,
    /// Offloads and the like, by name, in words.
    pub(super) state: BTreeMap<String, String>,
}

/// Packets in the clear, and their bytes.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// One peer.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PeerReport {
    /// In base64, as `wg` shows it.
    pub(super) public_key: String,
    pub(super) endpoint: Option<String>,
    /// In seconds since 1970-01-01 UTC.
    pub(super) latest_handshake: Option<u64>,
    /// Bytes of datagrams, as `wg` shows them.
    pub(super) rx_bytes: u64,
    /// Bytes of datagrams, as `wg` shows them.
    pub(super) tx_bytes: u64,
    pub(super) rx_packets: u64,
    pub(super) tx_packets: u64,
}

impl Report {
    /// The report of the daemon that this process is.
    pub(crate) fn new(interface: &str, snapshot: &Snapshot) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interface: interface.to_owned(),
            counters: counters(&snapshot.counters),
            peers: snapshot.peers.iter().map(peer).collect(),
        }
    }

    /// Bytes of all packets in the clear, both ways.
    pub(super) fn bytes_carried(&self) -> u64 {
        self.counters.outbound.bytes + self.counters.inbound.bytes
    }
}

fn counters(counters: &Counters) -> CountersReport {
    let histograms = [
        ("packets_per_read", &counters.packets_per_read),
        ("packets_per_batch", &counters.packets_per_batch),
        ("segments_per_send", &counters.segments_per_send),
        ("segments_per_receive", &counters.segments_per_receive),
        ("packets_per_write", &counters.packets_per_write),
    ];
    let drops = DropReason::ALL.iter();
    let syscalls = counters.syscalls.iter();
    let state = counters.state.iter();
    CountersReport {
        outbound: Traffic {
            packets: counters.outbound_packets,
            bytes: counters.outbound_bytes,
        },
        inbound: Traffic {
            packets: counters.inbound_packets,
            bytes: counters.inbound_bytes,
        },
        histograms: histograms
            .map(|(name, histogram)| (name.to_owned(), histogram.counts.to_vec()))
            .into(),
        drops: drops
            .map(|reason| (reason.name().to_owned(), counters.drops.of(*reason)))
            .collect(),
        syscalls: syscalls
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
        ticks: counters.ticks,
        handshakes: counters.handshakes,
        cookies_sent: counters.cookies_sent,
        state: state
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
    }
}

fn peer(peer: &PeerSnapshot) -> PeerReport {
    let since_epoch = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).ok();
    PeerReport {
        public_key: BASE64_STANDARD.encode(peer.public_key.0),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        latest_handshake: peer
            .last_handshake
            .and_then(since_epoch)
            .map(|since_epoch| since_epoch.as_secs()),
        rx_bytes: peer.rx_bytes,
        tx_bytes: peer.tx_bytes,
        rx_packets: peer.rx_packets,
        tx_packets: peer.tx_packets,
    }
}
