//! The files that `convoy speedtest --profile` and `convoy profile` write.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use convoy_lab::measure::{Bed, Direction, TcpLoad};
use convoy_lab::wireguard::{Implementation, TunnelOptions};
use convoy_lab::{Namespace, Pid, eventually, require_root_lab};
use convoy_perf::profile::Stacks;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use tempfile::TempDir;

use crate::{PROGRAM, convoy, parsed, speedtest, turn_with_perf};

/// Functions of ring, and of the batch that a CPU with AVX-512 uses instead.
pub(crate) const AEAD: [&str; 2] = ["chacha20_poly1305", "convoy_aead::lanes::avx512"];
pub(crate) const EVENT_LOOP: &str = "tunnel";
pub(crate) const READING: &str = "PacketIo>::read";
const WRITING: &str = "PacketIo>::write";
/// The port at which forwarders arrive.
const SINK: u16 = 5303;
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn a_speed_test_writes_a_profile_of_both_daemons() {
    let Some(_turn) = turn_with_perf("a_speed_test_writes_a_profile_of_both_daemons") else {
        return;
    };
    let (_outer, out) = place();
    let arguments = format!("--secs 1 --json --profile {}", out.display());
    let report = parsed(&speedtest(&arguments));
    assert_eq!(report["runs"].as_array().unwrap().len(), 1);
    assert_eq!(report["runs"][0]["name"], "tcp-up");
    let expected = "flamegraph.svg profile.perf report.md shares.json stat.json syscalls.json";
    assert_eq!(files(&out), expected);

    let stacks = stacks(&out);
    assert_eq!(stacks.processes().len(), 2);
    for process in stacks.processes() {
        let own = stacks.of_process(process);
        let mut threads = own.iter().map(|(thread, ..)| thread);
        assert!(threads.any(|thread| thread == EVENT_LOOP), "{process}");
    }
    // On a busy machine, samples are few, and either call may have none.
    for stage in [&AEAD[..], &[READING, WRITING]] {
        let mut functions = stacks.iter().flat_map(|(_, functions, _)| functions);
        let found = functions.any(|function| has_any(function, stage));
        assert!(found, "{stage:?}");
    }
    let text = fs::read_to_string(out.join("profile.perf")).unwrap();
    assert!(text.starts_with("# ========\n"), "the header is missing");

    let syscalls = json(&out, "syscalls.json");
    assert!(syscalls["gigabytes"].as_f64().unwrap() > 0.0, "{syscalls}");
    let named = |kind: &str, start: &str| {
        let mut calls = syscalls[kind].as_array().unwrap().iter();
        let call = calls.find(|call| call["name"].as_str().unwrap().starts_with(start));
        call.unwrap()["calls_per_gb"].as_f64().unwrap()
    };
    assert!(named("calls", "sendmsg") > 0.0, "{syscalls}");
    assert!(named("waits", "epoll_") > 0.0, "{syscalls}");
    let shares = json(&out, "shares.json");
    assert_eq!(shares["all"]["samples"], stacks.total());
    assert!(shares["sends_per_gb"].as_f64().unwrap() > 0.0, "{shares}");
    assert!(shares["host"]["kernel"].is_string(), "{shares}");
    let sending = |daemon: usize| shares["daemons"][daemon]["udp_sendmsg"].as_f64().unwrap();
    assert!(sending(0) > sending(1), "{shares}");
    let stat = json(&out, "stat.json");
    assert!(stat["cpu_seconds"].as_f64().unwrap() > 0.0, "{stat}");
    assert!(stat["context_switches"].as_f64().unwrap() > 0.0, "{stat}");
    // A counter that this machine does not have is null, never zero.
    assert_ne!(stat["cycles"].as_f64(), Some(0.0), "{stat}");

    let page = fs::read_to_string(out.join("report.md")).unwrap();
    for part in ["AEAD", "calls/GB**", "| `tunnel`"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(has_any(&page, &AEAD), "{page}");
    let svg = fs::read_to_string(out.join("flamegraph.svg")).unwrap();
    for part in ["<svg", EVENT_LOOP] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(has_any(&svg, &AEAD));
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
    let mut profile = convoy(&["profile", "--pid", &pid, "--secs", "1", "--out"]);
    succeeds(profile.arg(&by_process));
    let syscalls = json(&by_process, "syscalls.json");
    assert!(syscalls["gigabytes"].as_f64().unwrap() > 0.0, "{syscalls}");

    let (_second, by_interface) = place();
    let mut profile = bed.tunnel.left.namespace.command(PROGRAM);
    profile.args("profile wg0 --secs 1 --call-graph dwarf --out".split(' '));
    succeeds(profile.arg(&by_interface).arg("--compare").arg(&by_process));
    let svg = fs::read_to_string(by_interface.join("flamegraph-diff.svg")).unwrap();
    assert!(svg.contains("red: a greater share"), "{svg}");
    assert_eq!(
        stacks(&by_interface).processes(),
        stacks(&by_process).processes()
    );
    assert!(bed.tunnel.left.daemon.ended().is_none());
}

#[test]
fn a_forwarder_and_a_tunnel_without_root_are_observed_with_all_their_processes() {
    let test = "a_forwarder_and_a_tunnel_without_root_are_observed_with_all_their_processes";
    let Some(_turn) = turn_with_perf(test).filter(|_| require_root_lab(test)) else {
        return;
    };
    let mut bed = bed();
    bed.tunnel.left.kill_daemon().unwrap();
    let (left, right) = (&bed.tunnel.left, &bed.tunnel.right);
    let listener = right.namespace.run(|| TcpListener::bind(("0.0.0.0", SINK)));
    let listener = listener.unwrap().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(|| io::copy(&mut stream.unwrap(), &mut io::sink()));
        }
    });
    let (outer, _) = place();
    let file = |name: &str, text: &str| {
        let path = outer.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let forwards = "Forward = 127.0.0.1:5301:10.9.0.2:5303\n";
    let keys = (left.keys.private_base64(), right.keys.public_base64());
    let tunnel = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.8.0.1/24\n#convoy: Forward = 127.0.0.1:5302:10.8.0.2:5303\n\
         [Peer]\nPublicKey = {}\nEndpoint = 10.9.0.2:51820\nAllowedIPs = 10.8.0.2/32\n",
        keys.0, keys.1
    );
    let (forwards, tunnel) = (file("ports", forwards), file("office.conf", &tunnel));
    let up: &[_] = &["up", "--userspace", "--foreground"];
    for (words, file, port, threads) in [
        (&["forward"][..], forwards, 5301, &["tokio-rt-worker"][..]),
        (up, tunnel, 5302, &["tokio-rt-worker", EVENT_LOOP]),
    ] {
        let mut command = left.namespace.command(PROGRAM);
        let mut process = command.args(words).arg(file).spawn().unwrap();
        let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
        let connected = eventually(DEADLINE, || left.namespace.run(connect).unwrap());
        let mut stream = connected.unwrap();
        // Until the program ends.
        let load = thread::spawn(move || while stream.write_all(&[7; 65_536]).is_ok() {});
        let (_first, out) = place();
        let pid = process.id().to_string();
        let mut profile = convoy(&["profile", "--pid", &pid, "--secs", "1", "--out"]);
        succeeds(profile.arg(&out));
        let stacks = stacks(&out);
        for thread in threads {
            assert!(stacks.iter().any(|(name, ..)| name == *thread), "{thread}");
        }
        let shares = json(&out, "shares.json");
        let processes = shares["daemons"].as_array().unwrap().len();
        assert!(processes >= threads.len(), "{shares}");
        let syscalls = json(&out, "syscalls.json");
        assert!(
            !syscalls["calls"].as_array().unwrap().is_empty(),
            "{syscalls}"
        );
        kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGTERM).unwrap();
        process.wait().unwrap();
        load.join().unwrap();
    }
}

/// A tunnel that carries TCP for longer than any test; it ends with the bed.
pub(crate) fn busy_bed() -> Bed {
    let mut bed = bed();
    bed.wait_until_up().unwrap();
    let load = TcpLoad {
        direction: Direction::Up,
        streams: 1,
        warmup: Duration::ZERO,
        window: Duration::from_secs(600),
    };
    let via = bed.tunnelled();
    bed.ends.begin_tcp(via, load, None).unwrap();
    bed
}

fn bed() -> Bed {
    let agent = |namespace: &Namespace| {
        let mut agent = namespace.command(PROGRAM);
        agent.arg("lab-inside");
        agent
    };
    let daemon = Implementation::new(PROGRAM);
    Bed::with(&daemon, agent, &TunnelOptions::default()).unwrap()
}

/// A directory that does not exist yet, and its parent.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let out = outer.path().join("profile");
    (outer, out)
}

pub(crate) fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// The directory's file names in order, separated by spaces.
pub(crate) fn files(out: &Path) -> String {
    let entries = fs::read_dir(out).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.join(" ")
}

fn has_any(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}

pub(crate) fn stacks(out: &Path) -> Stacks {
    Stacks::of_file(&out.join("profile.perf")).unwrap()
}

fn json(out: &Path, file: &str) -> Value {
    serde_json::from_slice(&fs::read(out.join(file)).unwrap()).unwrap()
}
