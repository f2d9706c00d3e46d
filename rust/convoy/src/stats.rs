//! `convoy stats`: requests a running daemon's counters; also the daemon's answer.

mod text;

use std::{collections::BTreeMap, io::Write, time::UNIX_EPOCH};

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_proto::{
    config::{PeerSnapshot, Snapshot},
    counters::{self, DropReason},
};
use convoy_stats::{Counters, Peer, Report, Traffic, query};

use crate::{cli::StatsArgs, uapi::socket};
pub(crate) use convoy_stats::{REQUEST, answer};
pub(crate) use text::binary;

/// Prints the counters of the daemon of an interface.
pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let json = query(&socket::path(args.interface.as_str()))?;
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{json}")?;
    } else {
        let report: Report = serde_json::from_str(&json)
            .context("the daemon's answer does not fit this version of convoy")?;
        stdout.write_all(text::render(&report, jiff::Timestamp::now()).as_bytes())?;
    }
    Ok(())
}

/// The report of the daemon in this process.
pub(crate) fn report(interface: &str, snapshot: &Snapshot) -> Report {
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interface: interface.to_owned(),
        counters: totals(&snapshot.counters),
        peers: snapshot.peers.iter().map(peer).collect(),
    }
}

fn totals(counters: &counters::Counters) -> Counters {
    let traffic = |packets, bytes| Traffic { packets, bytes };
    let histograms = [
        ("packets_per_read", &counters.packets_per_read),
        ("packets_per_batch", &counters.packets_per_batch),
        ("segments_per_send", &counters.segments_per_send),
        ("segments_per_receive", &counters.segments_per_receive),
        ("packets_per_write", &counters.packets_per_write),
        ("cpu_time_per_tick", &counters.cpu_time_per_tick),
    ];
    let drops = DropReason::ALL.iter();
    Counters {
        outbound: traffic(counters.outbound_packets, counters.outbound_bytes),
        inbound: traffic(counters.inbound_packets, counters.inbound_bytes),
        histograms: histograms
            .map(|(name, histogram)| (name.to_owned(), histogram.counts.to_vec()))
            .into(),
        drops: drops
            .map(|reason| (reason.name().to_owned(), counters.drops.of(*reason)))
            .collect(),
        syscalls: by_name(&counters.syscalls),
        ticks: counters.ticks,
        handshakes: counters.handshakes,
        cookies_sent: counters.cookies_sent,
        events: by_name(&counters.events),
        state: by_name(&counters.state),
    }
}

fn by_name<T: Clone>(entries: &[(&'static str, T)]) -> BTreeMap<String, T> {
    let entries = entries.iter();
    entries
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn peer(peer: &PeerSnapshot) -> Peer {
    let since_epoch = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).ok();
    Peer {
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
