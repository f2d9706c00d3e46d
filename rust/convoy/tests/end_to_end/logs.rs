//! The log: who reads it decides its format, and its level can change for a time.

use std::{
    fs::{self, File},
    os::unix::net::UnixDatagram,
    process::Command,
};

use convoy_lab::{Namespace, eventually, wireguard::Daemon};
use serde_json::Value;

use crate::scene::{DEADLINE, convoy, convoy_program, lab, output_of};

#[test]
fn whatever_a_program_writes_to_files_is_json() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let directory = tempfile::tempdir().unwrap();
    // Errors from before and after the log is set up, and of a second daemon for the same interface.
    let _daemon = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    for (name, variable, message) in [
        (
            "early",
            ("RUST_LOG", "convoy=loud"),
            "RUST_LOG is not a valid filter",
        ),
        (
            "late",
            ("WG_TUN_FD", "nonsense"),
            "WG_TUN_FD is not a number",
        ),
        ("taken", ("LOG_LEVEL", "debug"), "already in use"),
        ("silent", ("LOG_LEVEL", "silent"), "already in use"),
    ] {
        for is_one_file in [true, false] {
            let path = |kind| {
                directory
                    .path()
                    .join(format!("{name}-{is_one_file}-{kind}.log"))
            };
            let (stdout, stderr) = (path("out"), path("err"));
            let mut command = namespace.command(convoy_program());
            command.args(["-f", "wg0"]).env(variable.0, variable.1);
            let out = File::create(&stdout).unwrap();
            let err = match is_one_file {
                true => out.try_clone().unwrap(),
                false => File::create(&stderr).unwrap(),
            };
            let status = command.stdout(out).stderr(err).status().unwrap();
            assert_eq!(status.code(), Some(1));
            let files = [&stdout, &stderr].map(|path| fs::read_to_string(path).unwrap_or_default());
            let said: Vec<_> = files.iter().flat_map(|text| entries(text)).collect();
            let errors = said.iter().filter(|entry| {
                let text = entry["message"].as_str().unwrap();
                entry["severity"] == "ERROR" && text.contains(message)
            });
            let expected = 1 + usize::from(!is_one_file && !matches!(name, "early" | "silent"));
            assert_eq!(errors.count(), expected, "{name}: {said:?}");
        }
    }
}

#[test]
fn a_person_at_a_terminal_gets_text() {
    let Some((_turn, lab)) = lab(&["ip", "script"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let line = format!("WG_TUN_FD=nonsense {} -f wg0", convoy_program().display());
    let mut script = namespace.command("script");
    let output = script.args(["-qec", &line, "/dev/null"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("convoy: WG_TUN_FD is not a number"), "{said}");
}

#[test]
fn the_journal_is_only_used_if_stdout_leads_there() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let place = namespace.run_directory().join("systemd/journal");
    fs::create_dir_all(&place).unwrap();
    let _journal = UnixDatagram::bind(place.join("socket")).unwrap();
    let elsewhere = convoy().variable("JOURNAL_STREAM", "1:1");
    let daemon = Daemon::start(&namespace, &elsewhere, "wg0").unwrap();
    let is_ready = || (count(&daemon, "ready") == 1).then_some(());
    assert!(eventually(DEADLINE, is_ready).is_some(), "{}", daemon.log());
}

#[test]
fn a_daemons_level_changes_for_a_time_and_goes_back() {
    let Some((_turn, lab)) = lab(&["ip", "wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let daemon = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    daemon.request("set=1\nfwmark=1\n\n").unwrap();
    assert!(!daemon.log().contains("UAPI: set"), "{}", daemon.log());
    output_of(
        &namespace,
        convoy_program(),
        &["log", "wg0", "debug", "--for", "1h"],
    );
    daemon.request("set=1\nfwmark=2\n\n").unwrap();
    assert_eq!(count(&daemon, "UAPI: set"), 1);
    // Shortens it.
    output_of(
        &namespace,
        convoy_program(),
        &["log", "wg0", "debug", "--for", "1s"],
    );
    let is_back = || (count(&daemon, "logging as before") == 1).then_some(());
    assert!(eventually(DEADLINE, is_back).is_some(), "{}", daemon.log());
    daemon.request("set=1\nfwmark=3\n\n").unwrap();
    assert_eq!(count(&daemon, "UAPI: set"), 1, "{}", daemon.log());
    for entry in entries(&daemon.log()) {
        assert_eq!(entry["interface"], "wg0", "{entry}");
    }
}

#[test]
fn a_daemon_without_a_log_says_so() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let mut daemon = namespace.command(convoy_program());
    daemon
        .arg("wg0")
        .env_remove("LOG_LEVEL")
        .env_remove("RUST_LOG");
    assert!(daemon.status().unwrap().success());
    for (interface, words) in [("wg0", "LOG_LEVEL"), ("wg1", "wg1 is not up")] {
        let said = refused(&namespace, &["log", interface, "debug"]);
        assert!(said.contains(words), "{said}");
    }
    namespace.link().remove("wg0").unwrap();
}

fn refused(namespace: &Namespace, arguments: &[&str]) -> String {
    let mut command: Command = namespace.command(convoy_program());
    let output = command.args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn count(daemon: &Daemon, message: &str) -> usize {
    let entries = entries(&daemon.log());
    entries
        .iter()
        .filter(|entry| entry["message"] == message)
        .count()
}

/// The lines of a log, as `jq` reads them.
pub(crate) fn entries(log: &str) -> Vec<Value> {
    let entries = log.lines().map(|line| {
        let entry: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["time", "severity", "message"] {
            assert!(entry[key].is_string(), "{line}");
        }
        entry
    });
    entries.collect()
}
