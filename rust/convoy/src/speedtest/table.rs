//! A report for people, or as JSON.

use std::io::Write as _;

use convoy_lab::measure::{Host, Sample};
use convoy_lab::wireguard::TunnelOptions;
use serde::Serialize;

use super::report::{Ceiling, Compared, ComparisonReport, Report, Run, Settings};

const HEAD: [&str; 11] = [
    "test",
    "Gbit/s",
    "kpps",
    "loss %",
    "CPU s/GB",
    "pkts/read",
    "segs/send",
    "calls/GB",
    "ping ms",
    "loaded",
    "p99",
];

const LEGEND: &str = "\
Gbit/s     payload that arrived
kpps       UDP: the highest rate with at most 1 % loss, in thousands of packets a second
CPU s/GB   CPU seconds of both daemons for a gigabyte of payload
pkts/read  packets in an average read of the TUN device, by the daemon that sends
segs/send  datagrams in an average UDP send, by the daemon that sends
calls/GB   system calls of both daemons' data paths for a gigabyte of payload
ping ms    median round trip without load; under the test's load; 99th percentile under load
bare veth  TCP between the same namespaces without a tunnel: the ceiling
same loss  the same while the veth drops as many of its packets as of the tunnel's (--loss)
";

/// Prints a report on the standard output.
pub(super) fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    print_either(report, json, || text(report))
}

/// Prints a comparison on the standard output.
pub(super) fn print_comparison(report: &ComparisonReport, json: bool) -> anyhow::Result<()> {
    print_either(report, json, || comparison_text(report))
}

fn print_either(
    report: &impl Serialize,
    json: bool,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string(report)? + "\n"
    } else {
        text()
    };
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

fn text(report: &Report) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(report.runs.iter().map(row));
    let Ceiling {
        gbps,
        gbps_same_loss,
    } = report.ceiling;
    let bare = [
        ("bare veth", gbps),
        ("bare veth, same loss", gbps_same_loss),
    ];
    for (name, gbps) in bare.into_iter().filter(|(_, gbps)| gbps.is_some()) {
        rows.push(vec![name.to_owned(), figure(gbps, 2)]);
    }
    let notes: String = report.runs.iter().filter_map(note).collect();
    format!(
        "{}\n\n{}{notes}\n{LEGEND}",
        headline(&report.host, &report.settings),
        aligned(&rows)
    )
}

fn headline(host: &Host, settings: &Settings) -> String {
    let mut parts = vec![
        format!("convoy {}", env!("CARGO_PKG_VERSION")),
        host.to_string(),
    ];
    match &settings.to {
        Some(server) => parts.push(format!("to {server}")),
        None => {
            parts.push("two namespaces".to_owned());
            parts.extend(host.congestion_control.as_ref().map(|c| format!("TCP {c}")));
        }
    }
    let usual = TunnelOptions::default().tunnel_mtu;
    let mtu = settings.mtu.filter(|&mtu| mtu != usual);
    parts.extend(mtu.map(|mtu| format!("MTU {mtu}")));
    let peers = settings.peers.filter(|&peers| peers != 1);
    parts.extend(peers.map(|peers| format!("{peers} peers")));
    if settings.veth_gso == Some(false) {
        parts.push("no GSO on the veth".to_owned());
    }
    if settings.loss_percent > 0.0 {
        parts.push(format!("{} % loss", settings.loss_percent));
    }
    if !settings.daemon.is_empty() {
        parts.push(settings.daemon.join(" "));
    }
    parts.join(" · ")
}

fn row(run: &Run) -> Vec<String> {
    vec![
        run.name.clone(),
        figure(run.gbps, 2),
        figure(run.kpps, 1),
        figure(run.loss.map(|share| share * 100.0), 2),
        figure(run.cpu_s_per_gb, 2),
        figure(run.packets_per_read, 1),
        figure(run.segments_per_send, 1),
        figure(run.syscalls_per_gb, 0),
        figure(run.ping_idle_ms, 3),
        figure(run.ping_loaded_ms, 3),
        figure(run.ping_loaded_p99_ms, 3),
    ]
}

/// What must be known to read a UDP figure right.
fn note(run: &Run) -> Option<String> {
    let note = match (run.kpps, run.confirmed, run.generator_limited) {
        (None, Some(_), _) => "more than 1 % loss at any rate",
        (Some(_), Some(false), _) => "the rate held in short probes only",
        (Some(_), _, Some(true)) => "limited by the generator, not by the tunnel",
        _ => return None,
    };
    Some(format!("  {}: {note}\n", run.name))
}

fn comparison_text(report: &ComparisonReport) -> String {
    let comparison = &report.compare;
    let (a, b) = (&comparison.a, &comparison.b);
    let head = ["test", "figure", "A", "B", "A / B"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(comparison.tests.iter().map(compared_row));
    format!(
        "{}\nA: {} ({})\nB: {} ({})\n{} rounds in turns; medians, lowest to highest, spread\n\n{}",
        headline(&report.host, &report.settings),
        a.name,
        a.daemon.join(" "),
        b.name,
        b.daemon.join(" "),
        comparison.rounds,
        aligned(&rows)
    )
}

fn compared_row(compared: &Compared) -> Vec<String> {
    let unit = match compared.figure {
        "gbps" => "Gbit/s",
        "cpu_s_per_gb" => "CPU s/GB",
        other => other,
    };
    let sample = |sample: &Option<Sample>| match sample {
        Some(sample) => format!(
            "{:.2} ({:.2}–{:.2}, {:.0} %)",
            sample.median,
            sample.min,
            sample.max,
            sample.spread() * 100.0
        ),
        None => "–".to_owned(),
    };
    vec![
        compared.name.clone(),
        unit.to_owned(),
        sample(&compared.a),
        sample(&compared.b),
        sample(&compared.ratio),
    ]
}

fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Columns as wide as their widest cell: the name to the left, figures to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<_> = cells
            .map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
