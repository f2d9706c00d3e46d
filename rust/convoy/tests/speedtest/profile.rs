//! `convoy speedtest --profile` and `convoy profile`: what they write.

mod importer;
mod refusals;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::MutexGuard;
use std::time::Duration;

use convoy_lab::measure::{Bed, Direction, TcpLoad};
use convoy_lab::require_programs;
use convoy_lab::wireguard::Implementation;
use convoy_perf::{Sample, Samples};
use serde_json::Value;
use tempfile::TempDir;

use crate::{PROGRAM, parsed, speedtest, turn};

const EVENT_LOOP: &str = "tunnel";
/// Of the thread `tun-reader`, and of the event loop while that reads alone.
const READING: &str = "PacketIo>::read";
/// Of the thread `tun-writer`, and of the event loop while that writes alone.
const WRITING: &str = "PacketIo>::write";

#[test]
fn a_speed_test_writes_a_profile_of_both_daemons() {
    let test = "a_speed_test_writes_a_profile_of_both_daemons";
    let Some(_turn) = turn_with_perf(test) else {
        return;
    };
    let (_outer, out) = place();
    let output = speedtest(&["--secs", "1", "--json", "--profile", out.to_str().unwrap()]);
    let report = parsed(&output);
    assert_eq!(report["runs"].as_array().unwrap().len(), 1);
    assert_eq!(report["runs"][0]["name"], "tcp-up");
    assert_eq!(
        files(&out),
        [
            "flamegraph.svg",
            "profile.perf",
            "report.md",
            "shares.json",
            "stat.json",
            "syscalls.json"
        ]
    );

    let samples = samples(&out);
    let processes: BTreeSet<u32> = samples.iter().map(|sample| sample.pid).collect();
    assert_eq!(processes.len(), 2);
    for process in processes {
        let mut own = samples.iter().filter(|sample| sample.pid == process);
        assert!(own.any(|sample| sample.thread == EVENT_LOOP), "{process}");
    }
    for stage in ["chacha20_poly1305", READING, WRITING] {
        let mut functions = samples.iter().flat_map(|sample| &sample.frames);
        assert!(
            functions.any(|frame| frame.function.contains(stage)),
            "{stage}"
        );
    }

    let syscalls = json(&out, "syscalls.json");
    assert!(syscalls["gigabytes"].as_f64().unwrap() > 0.0, "{syscalls}");
    let sends = named(&syscalls["calls"], "sendmsg");
    assert!(sends["calls_per_gb"].as_f64().unwrap() > 0.0, "{sends}");
    let waits = syscalls["waits"].as_array().unwrap();
    let is_epoll = |wait: &Value| wait["name"].as_str().unwrap().starts_with("epoll_");
    assert!(waits.iter().any(is_epoll), "{syscalls}");
    let shares = json(&out, "shares.json");
    assert_eq!(shares["all"]["samples"], samples.len());
    assert!(shares["sends_per_gb"].as_f64().unwrap() > 0.0, "{shares}");
    let [sender, receiver] = [0, 1].map(|daemon| &shares["daemons"][daemon]);
    let sending = |daemon: &Value| daemon["udp_sendmsg"].as_f64().unwrap();
    assert!(sending(sender) > sending(receiver), "{shares}");
    let stat = json(&out, "stat.json");
    assert!(stat["cpu_seconds"].as_f64().unwrap() > 0.0, "{stat}");
    assert!(stat["context_switches"].as_f64().unwrap() > 0.0, "{stat}");
    // What this machine does not count is null, never zero.
    assert_ne!(stat["cycles"].as_f64(), Some(0.0), "{stat}");

    let page = fs::read_to_string(out.join("report.md")).unwrap();
    for part in [
        "| AEAD |",
        "chacha20_poly1305",
        "calls/GB**",
        "| `tunnel` |",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_running_daemon_is_found_by_its_process_and_by_its_interface() {
    let test = "a_running_daemon_is_found_by_its_process_and_by_its_interface";
    let Some(_turn) = turn_with_perf(test) else {
        return;
    };
    let mut bed = busy_bed();
    let (_first, by_process) = place();
    let pid = bed.tunnel.left.daemon.pid().to_string();
    let mut profile = Command::new(PROGRAM);
    profile.args(["profile", "--pid", &pid, "--secs", "1", "--out"]);
    succeeds(profile.arg(&by_process));
    let syscalls = json(&by_process, "syscalls.json");
    assert!(syscalls["gigabytes"].as_f64().unwrap() > 0.0, "{syscalls}");

    let (_second, by_interface) = place();
    let mut profile = bed.tunnel.left.namespace.command(PROGRAM);
    profile.args([
        "profile",
        "wg0",
        "--secs",
        "1",
        "--call-graph",
        "dwarf",
        "--out",
    ]);
    succeeds(profile.arg(&by_interface).arg("--compare").arg(&by_process));
    assert!(files(&by_interface).contains(&"flamegraph-diff.svg".to_owned()));
    let processes = |out| {
        samples(out)
            .iter()
            .map(|sample| sample.pid)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(processes(&by_interface), processes(&by_process));
    assert!(bed.tunnel.left.daemon.ended().is_none());
}

/// The right to be the only speed test, where there are the tools.
fn turn_with_perf(test: &str) -> Option<MutexGuard<'static, ()>> {
    turn(test).filter(|_| require_programs(test, &["perf", "strace"]))
}

/// A tunnel that carries TCP for longer than any test takes; it ends with the bed.
fn busy_bed() -> Bed {
    let mut bed = Bed::new(&Implementation::new(PROGRAM), |namespace| {
        let mut agent = namespace.command(PROGRAM);
        agent.args(["lab-inside", "traffic"]);
        agent
    })
    .unwrap();
    bed.wait_until_up().unwrap();
    let load = TcpLoad {
        direction: Direction::Up,
        streams: 1,
        warmup: Duration::ZERO,
        window: Duration::from_secs(600),
    };
    let via = bed.tunnelled();
    bed.ends.begin_tcp(via, load).unwrap();
    bed
}

/// A directory that is not there yet, and what it will be in.
fn place() -> (TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let out = outer.path().join("profile");
    (outer, out)
}

fn succeeds(command: &mut Command) {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}

fn files(out: &Path) -> Vec<String> {
    let entries = fs::read_dir(out).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Read as strictly as may be: one event, whole samples, nothing in between.
fn samples(out: &Path) -> Vec<Sample> {
    let text = fs::read(out.join("profile.perf")).unwrap();
    assert!(text.starts_with(b"# ========\n"), "the header is missing");
    let samples: Result<Vec<_>, _> = Samples::new(&text[..]).collect();
    samples.unwrap()
}

fn json(out: &Path, file: &str) -> Value {
    serde_json::from_slice(&fs::read(out.join(file)).unwrap()).unwrap()
}

fn named<'a>(calls: &'a Value, name: &str) -> &'a Value {
    let mut calls = calls.as_array().unwrap().iter();
    calls.find(|call| call["name"] == name).unwrap()
}
