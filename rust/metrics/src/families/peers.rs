//! The series of each peer.

use std::{collections::HashMap, fmt};

use convoy_report::Peer;
use jiff::Timestamp;
use prometheus_client::registry::Unit;

use super::out::{Labels, Out};
use crate::health;

/// The most peers with series of their own: about 2 MB of text.
pub(super) const MAX_PEERS: usize = 2_000;

const BYTES: Option<&Unit> = Some(&Unit::Bytes);

/// A counter of a peer.
type Figure = fn(&Peer) -> u64;

/// The peers with series of their own.
pub(super) fn shown(peers: &[Peer]) -> &[Peer] {
    &peers[..peers.len().min(MAX_PEERS)]
}

/// Writes them, in families that begin with `prefix`; a peer without a name in `names` has an empty one, which Prometheus
/// takes for none.
pub(super) fn write(
    out: &mut Out<'_>,
    prefix: &str,
    peers: &[Peer],
    names: Option<&HashMap<String, String>>,
    now: Timestamp,
) -> fmt::Result {
    let counters: [(&str, &str, Option<&Unit>, Figure); 4] = [
        (
            "peer_sent",
            "Bytes of datagrams sent to a peer",
            BYTES,
            |peer| peer.tx_bytes,
        ),
        (
            "peer_received",
            "Bytes of datagrams from a peer",
            BYTES,
            |peer| peer.rx_bytes,
        ),
        (
            "peer_sent_packets",
            "Packets sent to a peer",
            None,
            |peer| peer.tx_packets,
        ),
        (
            "peer_received_packets",
            "Packets from a peer",
            None,
            |peer| peer.rx_packets,
        ),
    ];
    for (name, help, unit, figure) in counters {
        let series = peers
            .iter()
            .map(|peer| (labels_of(peer, names), figure(peer)));
        out.counters(&format!("{prefix}{name}"), help, unit, series)?;
    }
    let live = |peer: &Peer| u64::from(health::is_live(peer, now));
    let sessions = peers
        .iter()
        .map(|peer| (labels_of(peer, names), live(peer)));
    out.gauges(
        &format!("{prefix}peer_session"),
        "Whether a peer has a session",
        None,
        sessions,
    )?;
    let handshakes = peers.iter();
    let handshakes =
        handshakes.filter_map(|peer| Some((labels_of(peer, names), peer.latest_handshake?)));
    let help = "When the latest handshake with a peer was; absent if there was none";
    out.gauges(
        &format!("{prefix}peer_latest_handshake_timestamp"),
        help,
        Some(&Unit::Seconds),
        handshakes,
    )
}

fn labels_of<'p>(peer: &'p Peer, names: Option<&'p HashMap<String, String>>) -> Labels<'p, 2> {
    let name = names.and_then(|names| names.get(&peer.public_key));
    [
        ("public_key", peer.public_key.as_str()),
        ("name", name.map_or("", String::as_str)),
    ]
}
