//! Tests that a running daemon has given up its privileges.

use std::fs;

use convoy_lab::{Pid, eventually};

use crate::scene::{Bed, DEADLINE};

/// CAP_NET_BIND_SERVICE, CAP_NET_BROADCAST and CAP_NET_ADMIN (capabilities(7)).
pub(crate) const KEPT: u64 = SUPERVISED | 1 << 12;

/// The first two: a tunnel's, whose supervisor has the third.
pub(crate) const SUPERVISED: u64 = 1 << 10 | 1 << 11;

#[test]
fn every_thread_keeps_three_capabilities_and_few_system_calls() {
    let Some(bed) = Bed::new() else { return };
    bed.namespace.link().set_up("wg0").unwrap();
    let pid = bed.daemon.pid();
    let threads = eventually(DEADLINE, || {
        let threads = statuses(pid);
        // A new thread has its parent's name at first.
        let is_there = |name: &&str| threads.iter().any(|status| field(status, "Name") == *name);
        ["tunnel", "tun-reader", "tun-writer"]
            .iter()
            .all(is_there)
            .then_some(threads)
    });
    // A container may have fewer to begin with.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let kept = |set| KEPT & bits(&own, set);
    for status in threads.expect("all threads") {
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let sets = sets.map(|set| bits(&status, set));
        let expected = [0, kept("CapPrm"), kept("CapEff"), kept("CapBnd"), 0];
        assert_eq!(sets, expected, "{status}");
        assert_eq!(field(&status, "NoNewPrivs"), "1");
        // A filter (proc_pid_status(5)).
        assert_eq!(field(&status, "Seccomp"), "2");
    }
}

/// The status of each thread.
pub(crate) fn statuses(pid: Pid) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads = threads.filter_map(|thread| {
        // It may have ended meanwhile.
        fs::read_to_string(thread.ok()?.path().join("status")).ok()
    });
    threads.collect()
}

/// A set of capabilities.
pub(crate) fn bits(status: &str, set: &str) -> u64 {
    u64::from_str_radix(&field(status, set), 16).unwrap()
}

pub(crate) fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found == name).then(|| value.trim().to_owned())
    });
    line.unwrap_or_else(|| panic!("no {name} in:\n{status}"))
}
