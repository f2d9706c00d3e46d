//! The text that `convoy stats` prints for people.

use std::{collections::BTreeMap, fmt, fmt::Write};

use convoy_report::{Counters, HISTOGRAMS, Peer, Report};
use jiff::Timestamp;

use crate::{
    direct,
    figures::{binary, grouped, percentile},
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
    write_totals(out, counters)?;
    for figure in HISTOGRAMS {
        let counts = counters.histograms.get(figure.name);
        let counts = counts.map_or(&[][..], Vec::as_slice);
        write_histogram(out, figure.title, counts)?;
    }
    let drops: BTreeMap<_, _> = counters.drops.iter().filter(|(_, n)| **n > 0).collect();
    match drops.is_empty() {
        true => writeln!(out, "\ndrops: none")?,
        false => write_section(out, "drops", drops.iter().map(|(k, n)| (*k, grouped(**n))))?,
    }
    for (title, counts) in [
        ("system calls", &counters.syscalls),
        ("events", &counters.events),
    ] {
        write_section(out, title, counts.iter().map(|(k, n)| (k, grouped(*n))))?;
    }
    let state = counters.state.iter();
    write_section(out, "state", state.map(|(k, v)| (k, v.clone())))?;
    report
        .peers
        .iter()
        .try_for_each(|p| write_peer(out, p, now))
}

fn write_totals(out: &mut String, counters: &Counters) -> fmt::Result {
    writeln!(out, "\n  {:<10}{:>18}{:>14}", "", "packets", "bytes")?;
    let directions = [
        ("outbound", &counters.outbound),
        ("inbound", &counters.inbound),
    ];
    for (name, traffic) in directions {
        let (packets, bytes) = (grouped(traffic.packets), binary(traffic.bytes));
        writeln!(out, "  {name:<10}{packets:>18}{bytes:>14}")?;
    }
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

fn write_peer(out: &mut String, peer: &Peer, now: Timestamp) -> fmt::Result {
    let handshake = match peer.latest_handshake {
        Some(time) => {
            let age = now.as_second().saturating_sub_unsigned(time).max(0);
            format!("{} s ago", grouped(age.unsigned_abs()))
        }
        None => "never".to_owned(),
    };
    let endpoint = peer.endpoint.as_deref().unwrap_or("none");
    writeln!(out, "\npeer {}", peer.public_key)?;
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
    if let Some(relay) = &peer.relay {
        writeln!(out, "  by the relay {relay}")?;
    }
    let mut directs = peer.direct.iter();
    directs.try_for_each(|direct| writeln!(out, "  {}", direct::line(direct)))
}

#[cfg(test)]
mod tests;
