//! The results for people.

use convoy_lab::{
    measure::{Host, Sample},
    wireguard::TunnelOptions,
};

use super::report::{Compare, Compared, Report, Run, Runs, Settings};
use crate::table::{figure, plain};

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

/// The runs, and the bare veth below them.
pub(super) fn of_runs(report: &Report<Runs>) -> String {
    let Runs { ceiling, runs, .. } = &report.results;
    let bare = [
        ("bare veth", ceiling.gbps),
        ("bare veth, same loss", ceiling.gbps_same_loss),
    ];
    let bare = bare.into_iter().filter(|(_, gbps)| gbps.is_some());
    let bare = bare.map(|(name, gbps)| vec![name.to_owned(), figure(gbps, 2)]);
    let notes: String = runs.iter().filter_map(note).collect();
    format!(
        "{}\n\n{}\n{notes}\n{LEGEND}",
        headline(&report.host, &report.settings),
        plain(HEAD, runs.iter().map(row).chain(bare))
    )
}

/// Both sides and their ratios.
pub(super) fn of_comparison(report: &Report<Compare>) -> String {
    let comparison = &report.results.compare;
    let (a, b) = (&comparison.a, &comparison.b);
    format!(
        "{}\nA: {} ({})\nB: {} ({})\n{} rounds, interleaved; medians, lowest to highest, spread\n\n{}\n",
        headline(&report.host, &report.settings),
        a.name,
        a.daemon.join(" "),
        b.name,
        b.daemon.join(" "),
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

/// A remark without which a figure would be misread.
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

#[cfg(test)]
mod tests {
    use super::{super::report::Ceiling, *};

    fn shown(name: &str, run: Run) -> String {
        let settings = Settings {
            daemon: vec!["--gso".to_owned(), "off".to_owned()],
            mtu: Some(8_920),
            peers: Some(100),
            veth_gso: Some(false),
            ..Settings::default()
        };
        let run = Run {
            name: name.to_owned(),
            ..run
        };
        let results = Runs {
            ceiling: Ceiling {
                gbps: Some(19.0),
                gbps_same_loss: Some(1.5),
            },
            runs: vec![run],
            peak_memory_bytes: None,
        };
        of_runs(&Report::new(settings, results))
    }

    #[test]
    fn a_table_shows_figures_with_their_units_and_dashes_for_none() {
        let run = Run {
            gbps: Some(4.754),
            cpu_s_per_gb: Some(2.5),
            ..Run::default()
        };
        let text = shown("tcp-up", run);
        let cells = |row: &str| {
            let mut lines = text.lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with(row)).unwrap();
            line.split_whitespace().collect::<Vec<_>>()
        };
        let expected = ["tcp-up", "4.75", "–", "–", "2.50", "–"];
        assert_eq!(cells("tcp-up")[..6], expected);
        assert_eq!(cells("bare veth ")[2..], ["19.00"]);
        assert_eq!(cells("bare veth,")[4..], ["1.50"]);
        let conditions = "MTU 8920 · 100 peers · no GSO on the veth · --gso off";
        assert!(text.contains(conditions), "{text}");
    }

    #[test]
    fn figures_that_need_a_remark_have_one() {
        let limited = Run {
            kpps: Some(231.0),
            confirmed: Some(true),
            generator_limited: Some(true),
            ..Run::default()
        };
        let lossy = Run {
            confirmed: Some(false),
            ..Run::default()
        };
        for (name, run, remark) in [
            ("udp-1200", limited, "limited by the generator"),
            ("udp-64", lossy, "more than 1 % loss at any rate"),
            (
                "tcp-up-bbr",
                Run::default(),
                "the sender's kernel does not allow BBR",
            ),
        ] {
            let text = shown(name, run);
            assert!(text.contains(&format!("{name}: {remark}")), "{text}");
        }
    }
}
