//! Processes that hooks left, and that are now children of the supervisor.
//!
//! Hooks have process groups of their own, so a child in the supervisor's group is none of theirs.

use std::{fs, thread::sleep, time::Duration};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::{Pid, getpgid, getpgrp},
};
use tracing::warn;

/// The number of searches for processes that a killed one leaves, and the pause between them.
const ROUNDS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(2);

/// Lists all of them, dead or alive, including the tunnel if it has a process group of its own.
pub(crate) fn find() -> Vec<Pid> {
    let ours = getpgrp();
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    // A kernel without CONFIG_PROC_CHILDREN shows none: what hooks leave then stays.
    let lists = tasks.flatten().filter_map(|task| {
        let list = fs::read_to_string(task.path().join("children"));
        list.ok()
    });
    let pids = lists.flat_map(|list| pids(&list));
    pids.filter(|pid| getpgid(Some(*pid)).is_ok_and(|group| group != ours))
        .collect()
}

/// Kills the processes left by a hook whose `shell` was killed, and their descendants, but not the `earlier` ones.
/// Blocks, usually for some milliseconds, so that it cannot be cancelled halfway.
pub(crate) fn end(shell: Pid, earlier: &[Pid]) {
    for _ in 0..ROUNDS {
        // Until then, its children are not ours. Its owner waits for it.
        let has_died = has_died(shell);
        let strays = find().into_iter();
        let strays = strays.filter(|pid| *pid != shell && !earlier.contains(pid));
        let strays: Vec<_> = strays.collect();
        if has_died && strays.is_empty() {
            return;
        }
        for stray in strays {
            // It may have ended by now.
            let _ = kill(stray, Signal::SIGKILL);
            bury(stray);
        }
        sleep(PAUSE);
    }
    warn!("Processes that a hook left cannot be ended: look for them with `ps`");
}

/// Reaps dead processes except `tunnel`, whose owner waits for it.
pub(crate) fn reap(tunnel: Option<Pid>) {
    for pid in find() {
        if Some(pid) != tunnel {
            bury(pid);
        }
    }
}

/// Returns whether a child has ended; does not wait for it.
fn has_died(child: Pid) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    // An error means that it has been reaped.
    waitid(Id::Pid(child), look) != Ok(WaitStatus::StillAlive)
}

fn bury(pid: Pid) {
    // Still alive, or waited for already.
    let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
}

fn pids(list: &str) -> Vec<Pid> {
    let numbers = list.split_ascii_whitespace();
    let pids = numbers.filter_map(|number| number.parse().ok());
    pids.map(Pid::from_raw).collect()
}
