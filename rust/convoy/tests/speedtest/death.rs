//! A speed test that is ended at any moment leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

use crate::{PROGRAM, turn};

/// Marks all that a speed test starts, by its environment.
pub(crate) const MARK: &str = "CONVOY_SPEEDTEST_DEATH";
const DEADLINE: Duration = Duration::from_secs(10);
/// While the namespaces are built, the agents and daemons start, and traffic flows.
const MOMENTS_MS: [u64; 8] = [0, 5, 20, 60, 150, 400, 1_200, 2_600];

#[test]
fn an_interrupt_leaves_nothing_behind() {
    dies_cleanly("an_interrupt_leaves_nothing_behind", Signal::SIGINT);
}

#[test]
fn a_kill_leaves_nothing_behind() {
    dies_cleanly("a_kill_leaves_nothing_behind", Signal::SIGKILL);
}

#[test]
fn an_end_of_its_own_leaves_nothing_behind() {
    let test = "an_end_of_its_own_leaves_nothing_behind";
    let Some(_turn) = turn(test) else {
        return;
    };
    let before = interfaces();
    let mut process = start(test, &["--secs", "1", "--tests", "tcp-up"]);
    assert!(process.wait().unwrap().success());
    assert_nothing_left(test, &before);
}

fn dies_cleanly(test: &str, signal: Signal) {
    let Some(_turn) = turn(test) else {
        return;
    };
    let before = interfaces();
    for moment in MOMENTS_MS {
        let mark = format!("{test}:{moment}");
        let mut process = start(&mark, &["--secs", "5", "--tests", "tcp-up"]);
        thread::sleep(Duration::from_millis(moment));
        kill(Pid::from_raw(process.id().cast_signed()), signal).unwrap();
        process.wait().unwrap();
        assert_nothing_left(&mark, &before);
    }
}

fn start(mark: &str, arguments: &[&str]) -> Child {
    Command::new(PROGRAM)
        .arg("speedtest")
        .args(arguments)
        .env(MARK, mark)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub(crate) fn assert_nothing_left(mark: &str, before: &BTreeSet<String>) {
    let gone = eventually(DEADLINE, || marked(mark).is_empty().then_some(()));
    assert!(gone.is_some(), "{mark} left {:?}", marked(mark));
    let new: Vec<_> = interfaces()
        .difference(before)
        .filter(|name| name.starts_with("veth") || *name == "wg0")
        .cloned()
        .collect();
    assert!(new.is_empty(), "{mark} left {new:?}");
}

/// Processes that a marked speed test started, or its forks.
fn marked(mark: &str) -> Vec<String> {
    let variable = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|entry| entry == variable.as_bytes())
        })
        .map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        })
        .collect()
}

pub(crate) fn interfaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
