//! The results as text.

use std::collections::BTreeMap;

use convoy_lab::measure::{Host, Sample};
use convoy_lab::wireguard::TunnelOptions;

use super::report::{Compared, Comparison, Report, Results, Run, Runs, Settings};
use crate::table::{figure, plain};

const HEAD: &str =
    "test,Gbit/s,kpps,loss %,CPU s/GB,pkts/read,segs/send,calls/GB,ping ms,loaded,p99";
const THREADS_HEAD: &str = "CPU s/GB of threads,sender's tunnel,tun-reader,tun-writer,receiver's tunnel,tun-reader,tun-writer,ceiling";
const THREADS: [&str; 3] = ["tunnel", "tun-reader", "tun-writer"];
const COMPARISON_HEAD: &str = "test,figure,A,B,A / B";

const LEGEND: &str = "\
Gbit/s     payload received
kpps       UDP: the highest rate with at most 1 % loss, in thousands of packets a second
CPU s/GB   CPU seconds of both daemons per gigabyte of payload
pkts/read  average packets per TUN read of the sending daemon
segs/send  average datagrams per UDP send of the sending daemon
ceiling    Gbit/s at which the busiest thread would take all of a processor
calls/GB   system calls of both daemons' data paths per gigabyte of payload
ping ms    median round trip without load; loaded: under the test's load; p99: 99th percentile under load
-ping      TCP with a ping beside it; the other TCP tests count throughput without one
-bbr       TCP under BBR, which leaves processors idle: latency within the tunnel decides
bare veth  TCP between the same namespaces without a tunnel: the ceiling
same loss  the same with the packet loss of --loss on the veth
";

/// The whole report.
pub(super) fn of(report: &Report) -> String {
    let results = match &report.results {
        Results::Runs(results) => of_runs(results),
        Results::Comparison { compare } => of_comparison(compare),
    };
    format!("{}\n{results}", headline(&report.host, &report.settings))
}

/// The runs, and below them the bare veth.
fn of_runs(Runs { ceiling, runs, .. }: &Runs) -> String {
    let bare = [
        ("bare veth", ceiling.gbps),
        ("bare veth, same loss", ceiling.gbps_same_loss),
    ];
    let bare = bare.into_iter().filter(|(_, gbps)| gbps.is_some());
    let bare = bare.map(|(name, gbps)| vec![name.to_owned(), figure(gbps, 2)]);
    let notes: String = runs.iter().filter_map(note).collect();
    let table = plain(HEAD, runs.iter().map(row).chain(bare));
    format!("\n{table}\n{notes}\n{}{LEGEND}", of_threads(runs))
}

/// CPU time by thread; empty if the daemons are not of this program.
fn of_threads(runs: &[Run]) -> String {
    let rows: Vec<_> = runs.iter().filter_map(threads_row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => plain(THREADS_HEAD, rows) + "\n\n",
    }
}

fn threads_row(run: &Run) -> Option<Vec<String>> {
    let threads = run.threads.as_ref()?;
    let of = |costs: &BTreeMap<String, f64>| {
        THREADS.map(|name| figure(Some(costs.get(name).copied().unwrap_or(0.0)), 2))
    };
    let mut row = vec![run.name.clone()];
    row.extend(of(&threads.sender));
    row.extend(of(&threads.receiver));
    row.push(figure(run.threads_ceiling(), 1));
    Some(row)
}

/// Both sides and their ratios.
fn of_comparison(comparison: &Comparison) -> String {
    let sides = [("A", &comparison.a), ("B", &comparison.b)];
    let sides =
        sides.map(|(name, side)| format!("{name}: {} ({})\n", side.name, side.daemon.join(" ")));
    format!(
        "{}{} rounds, interleaved; medians, lowest to highest, spread\n\n{}\n",
        sides.concat(),
        comparison.rounds,
        plain(COMPARISON_HEAD, comparison.tests.iter().map(compared_row))
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

/// A remark without which a figure would be misleading.
fn note(run: &Run) -> Option<String> {
    let note = match (run.kpps, run.confirmed, run.generator_limited) {
        (None, Some(_), _) => "more than 1 % loss at any rate",
        (Some(_), Some(false), _) => "the rate held in short probes only",
        (Some(_), _, Some(true)) => "limited by the generator, not by the tunnel",
        _ if run.name.contains("bbr") && run.gbps.is_none() => {
            "the sender's kernel does not allow BBR (fix: `sudo modprobe tcp_bbr`, and bbr in \
             net.ipv4.tcp_allowed_congestion_control)"
        }
        _ => return None,
    };
    Some(format!("  {}: {note}\n", run.name))
}

fn compared_row(compared: &Compared) -> Vec<String> {
    let unit = match compared.figure {
        "gbps" => "Gbit/s",
        "cpu_s_per_gb" => "CPU s/GB",
        other => other,
    };
    let sample = |sample: &Option<Sample>| {
        let Some(sample) = sample else {
            return figure(None, 2);
        };
        let Sample {
            median, min, max, ..
        } = sample;
        let spread = sample.spread() * 100.0;
        format!("{median:.2} ({min:.2}–{max:.2}, {spread:.0} %)")
    };
    let [a, b, ratio] = [&compared.a, &compared.b, &compared.ratio].map(sample);
    vec![compared.name.clone(), unit.to_owned(), a, b, ratio]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_need_a_remark_have_one() {
        let (some, yes, no) = (Some(231.0), Some(true), Some(false));
        for (name, kpps, confirmed, remark) in [
            ("udp-1200", some, yes, "limited by the generator"),
            ("udp-1200", some, no, "in short probes only"),
            ("udp-64", None, no, "more than 1 % loss at any rate"),
            ("tcp-up-bbr", None, None, "does not allow BBR"),
        ] {
            let run = Run {
                name: name.to_owned(),
                kpps,
                confirmed,
                generator_limited: yes,
                ..Run::default()
            };
            let note = note(&run).unwrap();
            assert!(note.contains(name) && note.contains(remark), "{note}");
        }
    }
}
