//! The processes and connections inside a namespace.

use std::{fs, io, os::fd::AsFd, os::unix::fs::MetadataExt, thread, time::Duration};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::fstat,
    },
    unistd::{Pid, getpid},
};

/// How often to look, as processes may be just being forked or slow to die; and the pause in between.
const LOOKS: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Kills all other processes in a network namespace, also those that have left their parents.
pub(super) fn end_all(network: impl AsFd) {
    for _ in 0..LOOKS {
        let others = others(network.as_fd()).unwrap_or_default();
        if others.is_empty() {
            return;
        }
        for pid in others {
            // It may have ended meanwhile.
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(PAUSE);
    }
}

fn others(network: impl AsFd) -> io::Result<Vec<Pid>> {
    let ours = fstat(network)?;
    let ours = (ours.st_dev, ours.st_ino);
    let network_of = |pid: Pid| {
        let file = fs::metadata(format!("/proc/{pid}/ns/net"))?;
        io::Result::Ok((file.dev(), file.ino()))
    };
    let this = getpid();
    let entries = fs::read_dir("/proc")?.flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = all.map(Pid::from_raw).filter(|pid| *pid != this);
    Ok(others
        .filter(|pid| network_of(*pid).is_ok_and(|theirs| theirs == ours))
        .collect())
}

/// `FIN_WAIT1`, `LAST_ACK` and `CLOSING`: closed at this end, and not all of it acknowledged (`tcp_states.h`).
const SENDING: [&str; 3] = ["04", "09", "0B"];

/// Returns whether there is such a connection in a table as `/proc/net/tcp` is one.
pub(super) fn is_sending(table: &str) -> bool {
    let states = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(3));
    states.flatten().any(|state| SENDING.contains(&state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_sending_until_its_end_is_acknowledged() {
        const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let of = |state| {
            let line = format!("   0: 0100007F:1A0B 0100007F:C350 {state} 00000000:00000000\n");
            is_sending(&format!("{HEADER}{line}"))
        };
        // ESTABLISHED, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, LISTEN, CLOSING
        let states = ["01", "04", "05", "06", "09", "0A", "0B"];
        let expected = [false, true, false, false, true, false, true];
        assert_eq!(states.map(of), expected);
        assert!(!is_sending(HEADER) && !is_sending(""));
    }
}
