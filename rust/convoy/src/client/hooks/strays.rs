//! Processes that hooks left, and that are now children of the supervisor.
//!
//! Hooks have process groups of their own, so a child in the supervisor's group is none of theirs.

use std::{fs, time::Duration};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::{Pid, getpgid, getpgrp},
};
use tokio::time::sleep;
use tracing::warn;

/// How often to look for further ones, which one that ends leaves; and the pause in between.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// All of them, dead or alive; the tunnel too, if it has a process group of its own.
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

/// Ends those selected, and what they leave.
pub(crate) async fn end(selects: impl Fn(Pid) -> bool) {
    for _ in 0..ROUNDS {
        let strays = find().into_iter().filter(|pid| selects(*pid));
        let strays: Vec<_> = strays.collect();
        if strays.is_empty() {
            return;
        }
        for stray in strays {
            // It may have ended by now.
            let _ = kill(stray, Signal::SIGKILL);
            bury(stray);
        }
        sleep(PAUSE).await;
    }
    warn!("Processes that a hook left cannot be ended: look for them with `ps`");
}

/// Lets dead ones go, except `tunnel`, which somebody else waits for.
pub(crate) fn reap(tunnel: Option<Pid>) {
    for pid in find() {
        if Some(pid) != tunnel {
            bury(pid);
        }
    }
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
