//! `convoy stats`: requests a running daemon's counters; also the daemon's answer.
//!
//! The program runs the command, a daemon makes its report, and whoever shows figures words them alike: sizes, grouped
//! digits, percentiles, direct paths. It counts nothing itself, and changes no tunnel.

pub mod direct;
mod figures;
pub mod relay;
mod text;

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use convoy_daemon::args::DeviceName;
use convoy_process::{print, printable, socket::connect_within};
use convoy_proto::{
    config::{PeerSnapshot, RecentTraffic, Snapshot},
    counters::{self, DropReason},
};
use convoy_report::{Counters, OuterCounters, OuterReport, Peer, Recent, Report, Traffic, query};
use convoy_uapi::socket;

pub use figures::{binary, grouped, percentile};

/// The arguments of `convoy stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Interface of the daemon
    #[arg(value_name = "IFACE")]
    pub interface: DeviceName,

    /// Print one line of JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Prints the counters of the daemon of an interface.
pub fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let json = query(&socket::path(args.interface.as_str()), connect_within)?;
    if args.json {
        return print(&format!("{json}\n"));
    }
    let report: Report = serde_json::from_str(&json)
        .context("the daemon's answer does not fit this version of convoy")?;
    print(&printable(&text::render(&report, jiff::Timestamp::now())))
}

/// The report of the daemon in this process.
pub fn report(interface: &str, snapshot: &Snapshot) -> Report {
    let peers = snapshot.peers.iter().map(|of| Peer {
        direct: direct::peers_of(of.public_key, &snapshot.directs),
        ..peer(of)
    });
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interface: interface.to_owned(),
        public_key: snapshot.public_key.map(|key| BASE64_STANDARD.encode(key.0)),
        listen_port: snapshot.listen_port,
        fwmark: snapshot.fwmark,
        recent: Some(recent(&snapshot.recent)),
        counters: totals(&snapshot.counters),
        peers: peers.collect(),
        // Of two tunnels, only the outer one is on the network.
        relays: (snapshot.outer.as_deref().unwrap_or(snapshot))
            .relays
            .iter()
            .map(relay::server)
            .collect(),
        outer: snapshot.outer.as_deref().map(outer),
    }
}

fn outer(snapshot: &Snapshot) -> OuterReport {
    OuterReport {
        public_key: snapshot.public_key.map(|key| BASE64_STANDARD.encode(key.0)),
        counters: Some(outer_totals(&snapshot.counters)),
        peers: snapshot.peers.iter().map(peer).collect(),
    }
}

fn outer_totals(counters: &counters::Counters) -> OuterCounters {
    OuterCounters {
        outbound: traffic(counters.outbound_packets, counters.outbound_bytes),
        inbound: traffic(counters.inbound_packets, counters.inbound_bytes),
        drops: by_reason(&counters.drops),
        handshakes: counters.handshakes,
        cookies_sent: counters.cookies_sent,
    }
}

fn recent(recent: &RecentTraffic) -> Recent {
    Recent {
        milliseconds: recent.time.as_millis() as u64,
        outbound: traffic(recent.outbound_packets, recent.outbound_bytes),
        inbound: traffic(recent.inbound_packets, recent.inbound_bytes),
    }
}

fn traffic(packets: u64, bytes: u64) -> Traffic {
    Traffic { packets, bytes }
}

fn totals(counters: &counters::Counters) -> Counters {
    let histograms = [
        ("packets_per_read", &counters.packets_per_read),
        ("packets_per_batch", &counters.packets_per_batch),
        ("segments_per_send", &counters.segments_per_send),
        ("segments_per_receive", &counters.segments_per_receive),
        ("packets_per_write", &counters.packets_per_write),
        ("cpu_time_per_tick", &counters.cpu_time_per_tick),
    ];
    Counters {
        outbound: traffic(counters.outbound_packets, counters.outbound_bytes),
        inbound: traffic(counters.inbound_packets, counters.inbound_bytes),
        histograms: histograms
            .map(|(name, histogram)| (name.to_owned(), histogram.counts.to_vec()))
            .into(),
        drops: by_reason(&counters.drops),
        syscalls: by_name(&counters.syscalls),
        ticks: counters.ticks,
        handshakes: counters.handshakes,
        cookies_sent: counters.cookies_sent,
        events: by_name(&counters.events),
        state: by_name(&counters.state),
    }
}

fn by_reason(drops: &counters::Drops) -> BTreeMap<String, u64> {
    let reasons = DropReason::ALL.iter();
    reasons
        .map(|reason| (reason.name().to_owned(), drops.of(*reason)))
        .collect()
}

fn by_name<T: Clone>(entries: &[(&'static str, T)]) -> BTreeMap<String, T> {
    let entries = entries.iter();
    entries
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn peer(peer: &PeerSnapshot) -> Peer {
    let handshakes = &peer.handshakes;
    let networks = peer.allowed_ips.iter();
    let round_trip = handshakes.round_trip;
    Peer {
        public_key: BASE64_STANDARD.encode(peer.public_key.0),
        has_preshared_key: peer.preshared_key.is_some(),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        relay: peer.relay.map(|it| it.server.to_string()),
        relay_transport: peer.relay.map(|it| it.transport.name().to_owned()),
        allowed_ips: networks.map(|network| network.to_string()).collect(),
        persistent_keepalive: peer.persistent_keepalive.as_secs() as u16,
        latest_handshake: peer.last_handshake.and_then(seconds),
        connected_since: handshakes.connected_since.and_then(seconds),
        handshake_round_trip_us: round_trip.map(|time| time.as_micros() as u64),
        is_handshaking: handshakes.is_awaiting,
        unanswered_initiations: handshakes.unanswered,
        unauthentic_responses: handshakes.unauthentic,
        rx_bytes: peer.rx_bytes,
        tx_bytes: peer.tx_bytes,
        rx_packets: peer.rx_packets,
        tx_packets: peer.tx_packets,
        direct: Vec::new(),
    }
}

/// Since 1970.
fn seconds(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

#[cfg(test)]
mod tests {
    use convoy_proto::config::PrivateKey;

    use super::*;

    #[test]
    fn the_report_holds_no_secret() {
        let key = [0xb8; 32];
        let snapshot = Snapshot {
            private_key: Some(PrivateKey(key)),
            listen_port: 7,
            ..Snapshot::default()
        };
        let json = serde_json::to_string(&report("wg0", &snapshot)).unwrap();
        assert!(json.contains("\"listen_port\":7"), "{json}");
        for secret in [BASE64_STANDARD.encode(key), hex::encode(key)] {
            assert!(!json.contains(&secret[8..40]), "{json}");
        }
    }
}
