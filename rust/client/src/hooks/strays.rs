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

/// How often to look for further ones, which one that ends leaves; and the pause in between.
const ROUNDS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(2);

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

/// Ends what a hook leaves whose `shell` has been killed, and what that leaves in turn; `earlier` ones stay.
/// Blocks, usually for some milliseconds, so that nobody can cancel it halfway.
pub(crate) fn end(shell: Pid, earlier: &[Pid]) {
    for _ in 0..ROUNDS {
        // Until then its children are not ours. Somebody else waits for it.
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

/// Lets dead ones go, except `tunnel`, which somebody else waits for.
pub(crate) fn reap(tunnel: Option<Pid>) {
    for pid in find() {
        if Some(pid) != tunnel {
            bury(pid);
        }
    }
}

/// Whether a child has ended; does not wait for it.
fn has_died(child: Pid) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    // An error says that it has been waited for.
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
