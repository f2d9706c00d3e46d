//! A speed test leaves nothing behind, whenever it ends.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use convoy_lab::{Pid, Turn, eventually, require_lab};
use nix::sys::signal::{Signal, kill};

use crate::convoy;

/// Marks everything that a speed test starts, through its environment.
pub(crate) const MARK: &str = "CONVOY_SPEEDTEST_DEATH";
const DEADLINE: Duration = Duration::from_secs(10);
/// Delays at which the namespaces are built, the agents and daemons start, and traffic flows.
const MOMENTS_MS: [u64; 8] = [0, 5, 20, 60, 150, 400, 1_200, 2_600];

#[test]
fn an_interrupt_leaves_nothing_behind() {
    dies_cleanly("an_interrupt_leaves_nothing_behind", Some(Signal::SIGINT));
}

#[test]
fn a_kill_leaves_nothing_behind() {
    dies_cleanly("a_kill_leaves_nothing_behind", Some(Signal::SIGKILL));
}

#[test]
fn an_end_of_its_own_leaves_nothing_behind() {
    dies_cleanly("an_end_of_its_own_leaves_nothing_behind", None);
}

/// Ends by `signal` at several moments, or by itself.
fn dies_cleanly(test: &str, signal: Option<Signal>) {
    let _turn = Turn::alone("it looks for interfaces and processes on the whole machine");
    if !require_lab(test) {
        return;
    }
    let before = interfaces();
    let moments = &MOMENTS_MS[..signal.map_or(1, |_| MOMENTS_MS.len())];
    for moment in moments {
        let mark = format!("{test}:{moment}");
        let secs = signal.map_or("1", |_| "5");
        let mut process = convoy(&["speedtest", "--tests", "tcp-up", "--secs", secs])
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if let Some(signal) = signal {
            thread::sleep(Duration::from_millis(*moment));
            kill(Pid::from_raw(process.id().cast_signed()), signal).unwrap();
        }
        let status = process.wait().unwrap();
        assert_eq!(status.success(), signal.is_none(), "{mark}");
        assert_nothing_left(&mark, &before);
    }
}

pub(crate) fn assert_nothing_left(mark: &str, before: &BTreeSet<String>) {
    let gone = eventually(DEADLINE, || marked(mark).is_empty().then_some(()));
    assert!(gone.is_some(), "{mark} left {:?}", marked(mark));
    let after = interfaces();
    let mut new = after.difference(before);
    let left = new.find(|name| name.starts_with("veth") || *name == "wg0");
    assert_eq!(left, None, "{mark}");
}

/// Processes that a marked speed test started, and their forks.
fn marked(mark: &str) -> Vec<String> {
    let variable = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_marked = |process: &fs::DirEntry| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|&byte| byte == 0);
        variables.any(|entry| entry == variable.as_bytes())
    };
    let lines = processes.filter(is_marked).map(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    });
    lines.collect()
}

pub(crate) fn interfaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
