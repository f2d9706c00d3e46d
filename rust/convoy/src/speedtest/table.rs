//! A report for people, or as JSON.

use std::io::Write as _;

use serde::Serialize;

use super::host::Host;
use super::report::{Compared, ComparisonReport, Report, Run, Settings};
use super::statistics::Sample;

const LEGEND: &str = "\
rate      TCP: payload that arrived; UDP: the highest rate with at most 1 % loss, and its payload
CPU       CPU seconds of both daemons for a gigabyte of payload
pkts/rd   packets in an average read of the TUN device, by the daemon that sends
segs/snd  datagrams in an average UDP send, by the daemon that sends
calls/GB  system calls of both daemons' data paths for a gigabyte of payload
ping      median round trip, without load and under that of the test (and its 99th percentile)
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
    let head = [
        "test", "rate", "", "CPU s/GB", "pkts/rd", "segs/snd", "calls/GB", "ping ms", "loaded",
        "(p99)",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(report.runs.iter().map(row));
    if let Some(gbps) = report.ceiling.gbps {
        let rate = format!("{gbps:.2} Gbit/s");
        rows.push(vec![
            "bare veth".to_owned(),
            rate,
            "TCP without a tunnel".to_owned(),
        ]);
    }
    let notes = report.runs.iter().filter_map(note).collect::<String>();
    format!(
        "{}\n\n{}{notes}\n{LEGEND}",
        headline(&report.host, &report.settings),
        aligned(&rows)
    )
}

fn headline(host: &Host, settings: &Settings) -> String {
    let cpu = host.cpu.as_deref().unwrap_or("unknown CPU");
    let mut parts = vec![
        format!("convoy {}", env!("CARGO_PKG_VERSION")),
        format!("{} × {cpu}", host.cpus),
        format!("Linux {}", host.kernel),
    ];
    match &settings.to {
        Some(server) => parts.push(format!("to {server}")),
        None => parts.push("two namespaces".to_owned()),
    }
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
    let (rate, detail) = match (run.kpps, run.confirmed, run.gbps) {
        (Some(kpps), _, gbps) => (
            format!("{} kpps", figure(Some(kpps), 1)),
            format!(
                "{} Gbit/s, {} % loss",
                figure(gbps, 2),
                figure(percent(run.loss), 2)
            ),
        ),
        (None, Some(_), _) => ("–".to_owned(), "more than 1 % loss at any rate".to_owned()),
        (None, None, gbps) => (format!("{} Gbit/s", figure(gbps, 2)), String::new()),
    };
    vec![
        run.name.to_owned(),
        rate,
        detail,
        figure(run.cpu_s_per_gb, 2),
        figure(run.packets_per_read, 1),
        figure(run.segments_per_send, 1),
        figure(run.syscalls_per_gb, 0),
        figure(run.ping_idle_ms, 3),
        figure(run.ping_loaded_ms, 3),
        format!("({})", figure(run.ping_loaded_p99_ms, 3)),
    ]
}

/// What must be known to read a UDP figure right.
fn note(run: &Run) -> Option<String> {
    if run.generator_limited == Some(true) {
        Some(format!(
            "{}: limited by the generator, not by the tunnel\n",
            run.name
        ))
    } else if run.confirmed == Some(false) && run.kpps.is_some() {
        Some(format!(
            "{}: the rate held in short probes only\n",
            run.name
        ))
    } else {
        None
    }
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
        compared.name.to_owned(),
        unit.to_owned(),
        sample(&compared.a),
        sample(&compared.b),
        sample(&compared.ratio),
    ]
}

fn percent(share: Option<f64>) -> Option<f64> {
    share.map(|share| share * 100.0)
}

fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Columns as wide as their widest cell: text to the left, numbers to the right.
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
                0 | 2 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
