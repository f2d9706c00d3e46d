//! A report for people, or as JSON.

use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use convoy_lab::{
    measure::{Host, Sample},
    wireguard::TunnelOptions,
};
use serde::Serialize;

use super::{
    report::{Compared, ComparisonReport, Report, Run, Settings},
    test::BBR,
};
use crate::Error;

const HEAD: &str =
    "test,Gbit/s,kpps,loss %,CPU s/GB,pkts/read,segs/send,calls/GB,ping ms,loaded,p99";
const COMPARISON_HEAD: &str = "test,figure,A,B,A / B";

const LEGEND: &str = "\
Gbit/s     payload that arrived
kpps       UDP: the highest rate with at most 1 % loss, in thousands of packets a second
CPU s/GB   CPU seconds of both daemons for a gigabyte of payload
pkts/read  packets in an average read of the TUN device, by the daemon that sends
segs/send  datagrams in an average UDP send, by the daemon that sends
calls/GB   system calls of both daemons' data paths for a gigabyte of payload
ping ms    median round trip without load; under the test's load; 99th percentile under load
-ping      TCP counted with that ping beside it; the other TCP tests are counted without
-bbr       TCP under BBR, which leaves processors idle: latency within the tunnel decides
bare veth  TCP between the same namespaces without a tunnel: the ceiling
same loss  the same while the veth drops as many of its packets as of the tunnel's (--loss)
";

/// Prints a report on the standard output.
pub(super) fn print(report: &Report, json: bool) -> Result<(), Error> {
    print_either(report, json, || text(report))
}

/// Prints a comparison on the standard output.
pub(super) fn print_comparison(report: &ComparisonReport, json: bool) -> Result<(), Error> {
    print_either(report, json, || comparison_text(report))
}

fn print_either(
    report: &impl Serialize,
    json: bool,
    text: impl FnOnce() -> String,
) -> Result<(), Error> {
    let text = match json {
        true => serde_json::to_string(report).map_err(std::io::Error::from)? + "\n",
        false => text(),
    };
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

fn text(report: &Report) -> String {
    let ceiling = report.ceiling;
    let bare = [
        ("bare veth", ceiling.gbps),
        ("bare veth, same loss", ceiling.gbps_same_loss),
    ];
    let bare = bare.into_iter().filter(|(_, gbps)| gbps.is_some());
    let bare = bare.map(|(name, gbps)| vec![name.to_owned(), figure(gbps, 2)]);
    let rows = report.runs.iter().map(row).chain(bare);
    let notes: String = report.runs.iter().filter_map(note).collect();
    format!(
        "{}\n\n{}\n{notes}\n{LEGEND}",
        headline(&report.host, &report.settings),
        table(HEAD, rows)
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

/// A remark without which a figure would be misread.
fn note(run: &Run) -> Option<String> {
    let note = match (run.kpps, run.confirmed, run.generator_limited) {
        (None, Some(_), _) => "more than 1 % loss at any rate",
        (Some(_), Some(false), _) => "the rate held in short probes only",
        (Some(_), _, Some(true)) => "limited by the generator, not by the tunnel",
        _ if run.name.contains(BBR) && run.gbps.is_none() => {
            "the sender's kernel does not allow BBR (fix: `sudo modprobe tcp_bbr`, and bbr in \
             net.ipv4.tcp_allowed_congestion_control)"
        }
        _ => return None,
    };
    Some(format!("  {}: {note}\n", run.name))
}

fn comparison_text(report: &ComparisonReport) -> String {
    let comparison = &report.compare;
    let (a, b) = (&comparison.a, &comparison.b);
    let rows = comparison.tests.iter().map(compared_row);
    format!(
        "{}\nA: {} ({})\nB: {} ({})\n{} rounds, interleaved; medians, lowest to highest, spread\n\n{}\n",
        headline(&report.host, &report.settings),
        a.name,
        a.daemon.join(" "),
        b.name,
        b.daemon.join(" "),
        comparison.rounds,
        table(COMPARISON_HEAD, rows)
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
    let samples = [&compared.a, &compared.b, &compared.ratio].map(sample);
    [compared.name.clone(), unit.to_owned()]
        .into_iter()
        .chain(samples)
        .collect()
}

fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// The name to the left, figures to the right.
fn table(head: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .add_row(head.split(','))
        .add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speedtest::report::Ceiling;

    fn shown(run: Run) -> String {
        let settings = Settings {
            daemon: vec!["--gso".to_owned(), "off".to_owned()],
            mtu: Some(8_920),
            peers: Some(100),
            veth_gso: Some(false),
            ..Settings::default()
        };
        let ceiling = Ceiling {
            gbps: Some(19.0),
            gbps_same_loss: Some(1.5),
        };
        text(&Report::new(settings, ceiling, vec![run]))
    }

    fn cells<'a>(text: &'a str, row: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.trim_start().starts_with(row));
        line.unwrap().split_whitespace().collect()
    }

    #[test]
    fn a_table_shows_figures_with_their_units_and_dashes_for_none() {
        let text = shown(Run {
            gbps: Some(4.754),
            cpu_s_per_gb: Some(2.5),
            ..Run::named("tcp-up")
        });
        assert_eq!(
            cells(&text, "tcp-up")[..6],
            ["tcp-up", "4.75", "–", "–", "2.50", "–"]
        );
        assert_eq!(cells(&text, "bare veth ")[2..], ["19.00"]);
        assert_eq!(cells(&text, "bare veth,")[4..], ["1.50"]);
        let conditions = "MTU 8920 · 100 peers · no GSO on the veth · --gso off";
        assert!(text.contains(conditions), "{text}");
    }

    #[test]
    fn figures_that_need_a_remark_have_one() {
        let udp = Run {
            kpps: Some(231.0),
            confirmed: Some(true),
            generator_limited: Some(true),
            ..Run::named("udp-1200")
        };
        assert!(shown(udp).contains("udp-1200: limited by the generator"));
        let lossy = Run {
            confirmed: Some(false),
            ..Run::named("udp-64")
        };
        assert!(shown(lossy).contains("more than 1 % loss at any rate"));
        let text = shown(Run::named("tcp-up-bbr"));
        assert!(
            text.contains("tcp-up-bbr: the sender's kernel does not allow BBR"),
            "{text}"
        );
    }

    #[test]
    fn json_has_every_key_and_null_where_a_figure_does_not_apply() {
        let run = Run {
            gbps: Some(4.5),
            ..Run::named("tcp-up")
        };
        let report = Report::new(Settings::default(), Ceiling::default(), vec![run]);
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["host"].is_object() && json["ceiling"]["gbps"].is_null());
        let run = json["runs"][0].as_object().unwrap();
        assert_eq!(
            (run["name"].as_str(), run["gbps"].as_f64()),
            (Some("tcp-up"), Some(4.5))
        );
        let absent =
            "kpps loss cpu_s_per_gb segments_per_send packets_per_read histograms ping_idle_ms";
        for absent in absent
            .split(' ')
            .chain(["ping_loaded_ms", "ping_loaded_p99_ms"])
        {
            assert!(run[absent].is_null(), "{absent}");
        }
    }
}
