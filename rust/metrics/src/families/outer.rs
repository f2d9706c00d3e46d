//! The series of the tunnel through which another goes; none if there is no such tunnel.

use std::{collections::HashMap, fmt};

use convoy_report::{OuterCounters, OuterReport};
use jiff::Timestamp;
use prometheus_client::registry::Unit;

use super::{out::Out, peers};

/// Writes them; `names` are friendly names by public key.
pub(super) fn write(
    out: &mut Out<'_>,
    outer: &OuterReport,
    names: Option<&HashMap<String, String>>,
    now: Timestamp,
) -> fmt::Result {
    let count = outer.peers.len() as u64;
    let help = "Peers of the outer tunnel";
    out.gauge("outer_peers", help, count)?;
    if let Some(counters) = &outer.counters {
        write_counters(out, counters)?;
    }
    peers::write(out, "outer_", peers::shown(&outer.peers), names, now)
}

fn write_counters(out: &mut Out<'_>, counters: &OuterCounters) -> fmt::Result {
    let directions = [
        ("outbound", counters.outbound),
        ("inbound", counters.inbound),
    ];
    let by_direction = directions.map(|(name, traffic)| ([("direction", name)], traffic));
    let packets = by_direction.map(|(labels, traffic)| (labels, traffic.packets));
    let help = "Packets of the outer tunnel: datagrams of the tunnel inside";
    out.counters("outer_packets", help, None, packets.into_iter())?;
    let bytes = by_direction.map(|(labels, traffic)| (labels, traffic.bytes));
    let help = "Bytes of packets of the outer tunnel";
    let unit = Some(&Unit::Bytes);
    out.counters("outer_packet", help, unit, bytes.into_iter())?;
    let drops = counters.drops.iter();
    let drops = drops.map(|(reason, count)| ([("reason", reason.as_str())], *count));
    let help = "Packets and datagrams of the outer tunnel dropped";
    out.counters("outer_drops", help, None, drops)?;
    for (name, help, count) in [
        (
            "outer_handshakes",
            "Handshakes of the outer tunnel completed",
            counters.handshakes,
        ),
        (
            "outer_cookie_replies",
            "Cookie replies of the outer tunnel sent",
            counters.cookies_sent,
        ),
    ] {
        out.counters(name, help, None, [([], count)].into_iter())?;
    }
    Ok(())
}
