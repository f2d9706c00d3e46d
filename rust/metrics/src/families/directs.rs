//! The series of peers that are met through a hub; none if there is no such peer.

use std::{fmt, time::Duration};

use convoy_report::{DataPath, DirectPeer, Peer};
use prometheus_client::registry::Unit;

use super::out::{Labels, Out};

/// A counter of a peer.
type Figure = fn(&DirectPeer) -> u64;

/// Writes them for the peers behind these hubs.
pub(super) fn write(out: &mut Out<'_>, hubs: &[Peer]) -> fmt::Result {
    let all = || hubs.iter().flat_map(|hub| &hub.direct);
    if all().next().is_none() {
        return Ok(());
    }
    for (name, help, path) in [
        (
            "direct_path",
            "Whether data to a peer takes a direct path",
            DataPath::Direct,
        ),
        (
            "direct_relayed",
            "Whether data to a peer goes by a relay",
            DataPath::Relay,
        ),
    ] {
        let series = all().map(|it| (labels_of(it), u64::from(it.path == path)));
        out.gauges(name, help, None, series)?;
    }
    let help = "Round trip of the path to a peer that does not lead by the hub";
    let measured = all().filter_map(|it| Some((labels_of(it), it.round_trip_us?)));
    let series = measured.map(|(labels, time)| (labels, Duration::from_micros(time)));
    out.times("direct_round_trip", help, series)?;
    let counters: [(&str, &str, Option<&Unit>, Figure); 5] = [
        (
            "direct_sent",
            "Bytes of datagrams sent to a peer without the hub",
            Some(&Unit::Bytes),
            |it| it.tx_bytes,
        ),
        (
            "direct_received",
            "Bytes of datagrams from a peer without the hub",
            Some(&Unit::Bytes),
            |it| it.rx_bytes,
        ),
        (
            "direct_packets_by_hub",
            "Packets to a peer that left by the hub",
            None,
            |it| it.packets_by_hub,
        ),
        (
            "direct_probes_sent",
            "Probes of paths to a peer",
            None,
            |it| it.probes_sent,
        ),
        (
            "direct_probes_answered",
            "Probes of paths that a peer has answered",
            None,
            |it| it.probes_answered,
        ),
    ];
    for (name, help, unit, figure) in counters {
        let series = all().map(|it| (labels_of(it), figure(it)));
        out.counters(name, help, unit, series)?;
    }
    Ok(())
}

fn labels_of(peer: &DirectPeer) -> Labels<'_, 1> {
    [("public_key", peer.public_key.as_str())]
}
