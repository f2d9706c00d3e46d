//! The text that `convoy stats` prints for people.

use std::{collections::BTreeMap, fmt, fmt::Write};

use convoy_report::{Counters, HISTOGRAMS, OuterReport, Peer, Report, Traffic};
use jiff::Timestamp;

use crate::{
    direct,
    figures::{binary, grouped, percentile},
    relay,
};

/// Ranges of values that share a bar. 50 is a full batch, 64 the maximum of one send.
const BUCKETS: [(usize, usize); 11] = [
    (0, 0),
    (1, 1),
    (2, 2),
    (3, 4),
    (5, 8),
    (9, 16),
    (17, 32),
    (33, 49),
    (50, 50),
    (51, 63),
    (64, 64),
];

/// The bar of a bucket that holds all observations, in characters.
const FULL_BAR: f64 = 40.0;

/// The report in words, with the ages of handshakes as of `now`.
pub(super) fn render(report: &Report, now: Timestamp) -> String {
    let mut text = String::new();
    // INVARIANT: writing to a String does not fail.
    write_report(&mut text, report, now).expect("a String takes what is written");
    text
}

fn write_report(out: &mut String, report: &Report, now: Timestamp) -> fmt::Result {
    let counters = &report.counters;
    writeln!(out, "{} (convoy {})", report.interface, report.version)?;
    write_traffic(out, counters.outbound, counters.inbound)?;
    write_totals(out, counters)?;
    for figure in HISTOGRAMS {
        let counts = counters.histograms.get(figure.name);
        let counts = counts.map_or(&[][..], Vec::as_slice);
        write_histogram(out, figure.title, counts)?;
    }
    write_drops(out, "drops", &counters.drops)?;
    for (title, counts) in [
        ("system calls", &counters.syscalls),
        ("events", &counters.events),
    ] {
        write_section(out, title, counts.iter().map(|(k, n)| (k, grouped(*n))))?;
    }
    let state = counters.state.iter();
    write_section(out, "state", state.map(|(k, v)| (k, v.clone())))?;
    let mut peers = report.peers.iter();
    peers.try_for_each(|peer| write_peer(out, "peer", peer, now))?;
    let mut outer = report.outer.iter();
    outer.try_for_each(|outer| write_outer(out, outer, now))
}

/// The tunnel through which this one goes, in sections of its own.
fn write_outer(out: &mut String, outer: &OuterReport, now: Timestamp) -> fmt::Result {
    let key = outer.public_key.as_deref().unwrap_or("without a key");
    writeln!(out, "\nouter tunnel {key}")?;
    if let Some(counters) = &outer.counters {
        write_traffic(out, counters.outbound, counters.inbound)?;
        let (handshakes, cookies) = (counters.handshakes, counters.cookies_sent);
        let (handshakes, cookies) = (grouped(handshakes), grouped(cookies));
        writeln!(out, "  {handshakes} handshakes, {cookies} cookie replies")?;
        write_drops(out, "drops of the outer tunnel", &counters.drops)?;
    }
    let mut peers = outer.peers.iter();
    peers.try_for_each(|peer| write_peer(out, "outer peer", peer, now))
}

fn write_traffic(out: &mut String, outbound: Traffic, inbound: Traffic) -> fmt::Result {
    writeln!(out, "\n  {:<10}{:>18}{:>14}", "", "packets", "bytes")?;
    for (name, traffic) in [("outbound", outbound), ("inbound", inbound)] {
        let (packets, bytes) = (grouped(traffic.packets), binary(traffic.bytes));
        writeln!(out, "  {name:<10}{packets:>18}{bytes:>14}")?;
    }
    Ok(())
}

fn write_totals(out: &mut String, counters: &Counters) -> fmt::Result {
    writeln!(
        out,
        "  {} ticks, {} handshakes, {} cookie replies",
        grouped(counters.ticks),
        grouped(counters.handshakes),
        grouped(counters.cookies_sent),
    )
}

fn write_histogram(out: &mut String, title: &str, counts: &[u64]) -> fmt::Result {
    let samples: u64 = counts.iter().sum();
    if samples == 0 {
        return writeln!(out, "\n{title}: none");
    }
    let total: u64 = (0u64..).zip(counts).map(|(value, n)| value * n).sum();
    writeln!(
        out,
        "\n{title}: {} samples, mean {:.1}, p50 {}, p99 {}",
        grouped(samples),
        total as f64 / samples as f64,
        percentile(counts, samples, 50),
        percentile(counts, samples, 99),
    )?;
    for (low, high) in BUCKETS {
        let count: u64 = counts.iter().take(high + 1).skip(low).sum();
        if count > 0 {
            let label = match low == high {
                true => low.to_string(),
                false => format!("{low}-{high}"),
            };
            let share = count as f64 / samples as f64;
            let bar = "█".repeat((share * FULL_BAR).ceil() as usize);
            writeln!(out, "  {label:>7} {:>5.1} %  {bar}", share * 100.0)?;
        }
    }
    Ok(())
}

fn write_drops(out: &mut String, title: &str, drops: &BTreeMap<String, u64>) -> fmt::Result {
    let drops: BTreeMap<_, _> = drops.iter().filter(|(_, n)| **n > 0).collect();
    match drops.is_empty() {
        true => writeln!(out, "\n{title}: none"),
        false => write_section(out, title, drops.iter().map(|(k, n)| (*k, grouped(**n)))),
    }
}

fn write_section<'a>(
    out: &mut String,
    title: &str,
    entries: impl Iterator<Item = (&'a String, String)> + Clone,
) -> fmt::Result {
    let width = entries.clone().map(|(name, _)| name.len()).max();
    let Some(width) = width else { return Ok(()) };
    writeln!(out, "\n{title}:")?;
    for (name, value) in entries {
        writeln!(out, "  {name:<width$}  {value:>14}")?;
    }
    Ok(())
}

/// `title`: `peer`, or another if it is one of another tunnel.
fn write_peer(out: &mut String, title: &str, peer: &Peer, now: Timestamp) -> fmt::Result {
    let handshake = match peer.latest_handshake {
        Some(time) => {
            let age = now.as_second().saturating_sub_unsigned(time).max(0);
            format!("{} s ago", grouped(age.unsigned_abs()))
        }
        None => "never".to_owned(),
    };
    let endpoint = peer.endpoint.as_deref().unwrap_or("none");
    writeln!(out, "\n{title} {}", peer.public_key)?;
    writeln!(out, "  endpoint {endpoint}, latest handshake {handshake}")?;
    let directions = [
        ("outbound", peer.tx_packets, peer.tx_bytes),
        ("inbound", peer.rx_packets, peer.rx_bytes),
    ];
    for (name, packets, bytes) in directions {
        let (packets, bytes) = (grouped(packets), binary(bytes));
        writeln!(
            out,
            "  {name:<10}{packets:>18} packets{bytes:>14} encrypted"
        )?;
    }
    if let Some(path) = relay::path(peer) {
        writeln!(out, "  by the {path}")?;
    }
    let mut directs = peer.direct.iter();
    directs.try_for_each(|direct| writeln!(out, "  {}", direct::line(direct)))
}

#[cfg(test)]
mod tests;
