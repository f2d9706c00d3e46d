//! `convoy speedtest` and `convoy profile`, called as by a person or a script. Needs a lab, not root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod death;
mod hosts;
mod importer;
mod profile;
mod refusals;
mod rootless;

use std::process::{Command, Output};

use convoy_lab::{Turn, require_lab, require_programs};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_convoy");

#[test]
fn json_is_one_object_with_the_promised_keys() {
    let Some(_turn) = turn("json_is_one_object_with_the_promised_keys") else {
        return;
    };
    let report = json("--secs 1 --tests tcp-up,tcp-up-ping,tcp-up-bbr,udp-1200 --json");
    assert!(report["version"].is_string());
    assert!(report["host"]["kernel"].is_string());
    assert!(report["ceiling"]["gbps"].as_f64().unwrap() > 0.0);
    assert!(report["ceiling"]["gbps_same_loss"].is_null());
    let [plain, ping, bbr, udp] = &report["runs"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    let names = [plain, ping, bbr, udp].map(|run| run["name"].as_str().unwrap());
    assert_eq!(names, ["tcp-up", "tcp-up-ping", "tcp-up-bbr", "udp-1200"]);
    for figure in [
        "gbps",
        "cpu_s_per_gb",
        "segments_per_send",
        "packets_per_read",
        "syscalls_per_gb",
        "ping_idle_ms",
        "ping_loaded_ms",
        "ping_loaded_p99_ms",
    ] {
        for run in [plain, ping] {
            assert!(run[figure].as_f64().unwrap() > 0.0, "{figure}: {run}");
        }
    }
    for (end, thread) in [("sender", "tunnel"), ("receiver", "tun-writer")] {
        let cost = &plain["threads"][end][thread];
        assert!(cost.as_f64().unwrap() > 0.0, "{plain}");
    }
    for none in ["kpps", "loss"] {
        assert!(plain.as_object().unwrap().contains_key(none), "{none}");
        assert!(plain[none].is_null(), "{none}");
    }
    // Where the kernel does not allow BBR there is no figure under another congestion control.
    let is_bbr = bbr["congestion_control"] == "bbr";
    assert_eq!(is_bbr, bbr["gbps"].is_number(), "{bbr}");
    assert!(udp["kpps"].as_f64().unwrap() >= 1.0, "{udp}");
    let confirmed = udp["confirmed"] == Value::Bool(true);
    assert!(!confirmed || udp["loss"].as_f64().unwrap() <= 0.01, "{udp}");
}

#[test]
fn tests_of_any_size_run_in_a_tunnel_of_any_mtu_among_many_peers() {
    let Some(_turn) = turn("tests_of_any_size_run_in_a_tunnel_of_any_mtu_among_many_peers") else {
        return;
    };
    let report = json("--mtu 8920 --peers 100 --tests udp-512,tcp-2 --secs 1 --json");
    let settings = &report["settings"];
    assert_eq!(
        (&settings["mtu"], &settings["peers"]),
        (&8_920.into(), &100.into())
    );
    let runs = report["runs"].as_array().unwrap();
    assert_eq!([&runs[0]["name"], &runs[1]["name"]], ["udp-512", "tcp-2"]);
    for run in runs {
        assert!(run["gbps"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{run}");
    }
    assert!(report["peak_memory_bytes"].as_u64().unwrap() > 1_000_000);
}

#[test]
fn packets_that_would_be_fragmented_are_refused_before_anything_is_set_up() {
    let output = speedtest("--tests tcp-up,udp-1300 --mtu 1280");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(errors.contains("udp-1252 at most"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_comparison_has_medians_and_ratios() {
    let Some(_turn) = turn("a_comparison_has_medians_and_ratios") else {
        return;
    };
    let report = json("--compare shape --secs 1 --rounds 2 --json");
    let test = &report["compare"]["tests"][0];
    assert_eq!([&test["name"], &test["figure"]], ["tcp-up", "gbps"]);
    assert_eq!(test["a"]["values"].as_array().unwrap().len(), 2);
    assert!(test["ratio"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_link_can_lose_datagrams_and_cut_batches() {
    let test = "a_link_can_lose_datagrams_and_cut_batches";
    let Some(_turn) = turn(test).filter(|_| require_programs(test, &["nft"])) else {
        return;
    };
    let report = json("--loss 5 --secs 1 --tests udp-64 --json");
    assert_eq!(report["settings"]["veth_gso"], false);
    // No rate has at most one percent of loss if the link loses five.
    assert!(report["runs"][0]["kpps"].is_null(), "{report}");
    assert!(report["ceiling"]["gbps_same_loss"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_table_names_its_figures() {
    let Some(_turn) = turn("a_table_names_its_figures") else {
        return;
    };
    let output = speedtest("--secs 1 --tests tcp-down --gso off");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["Gbit/s", "tcp-down", "bare veth", "--gso off"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_daemon_that_does_not_start_is_an_error_with_its_reason() {
    let Some(_turn) = turn("a_daemon_that_does_not_start_is_an_error_with_its_reason") else {
        return;
    };
    let output = speedtest("--daemon /bin/false");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        errors.contains("/bin/false") && errors.contains("exit status: 1"),
        "{errors}"
    );
    assert!(output.stdout.is_empty());
}

/// The right to run a speed test beside others: none of these tests judges a speed. `None` if this machine
/// cannot run one.
fn turn(test: &str) -> Option<Turn> {
    let turn = Turn::together();
    require_lab(test).then_some(turn)
}

/// The same, with perf and strace. The kernel bounds the memory that all of a user's perfs lock.
fn turn_with_perf(test: &str) -> Option<Turn> {
    let turn = Turn::of_user(0);
    let possible = require_lab(test) && require_programs(test, &["perf", "strace"]);
    possible.then_some(turn)
}

/// Runs a speed test with these arguments, separated by spaces.
fn speedtest(arguments: &str) -> Output {
    let arguments = arguments.split(' ');
    let arguments: Vec<_> = ["speedtest"].into_iter().chain(arguments).collect();
    convoy(&arguments).output().unwrap()
}

/// The program with these arguments.
fn convoy(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

/// Parses standard output, which must be a single JSON object.
fn json(arguments: &str) -> Value {
    parsed(&speedtest(arguments))
}

fn parsed(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}
