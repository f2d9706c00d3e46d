//! Asks a daemon to let tools attach: it hides its memory otherwise.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use convoy_lab::Pid;
use nix::sys::signal::{Signal, kill};

/// Time limit for a daemon's answer.
const TIME: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks if the daemon is one that can be asked, and waits until it has let go. Other processes are left alone.
pub(super) fn ask(daemon: Pid) {
    if !catches(daemon, Signal::SIGUSR1) || kill(daemon, Signal::SIGUSR1).is_err() {
        return;
    }
    let deadline = Instant::now() + TIME;
    while is_hidden(daemon) && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
}

/// Whether the process has a handler; the signal would end it otherwise.
fn catches(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    caught.is_some_and(|set| set & (1 << (signal as i32 - 1)) != 0)
}

/// Hidden files of a process belong to root, and so to nobody else.
fn is_hidden(process: Pid) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_handler_is_left_alone() {
        let own = Pid::this();
        assert!(!catches(own, Signal::SIGUSR1));
        // It would end this test.
        ask(own);
    }
}
