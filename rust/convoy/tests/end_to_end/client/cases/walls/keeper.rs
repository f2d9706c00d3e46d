//! The process that removes a daemon's socket.

use std::fs;

use convoy_lab::{Pid, eventually, measure::process::is_alive};
use nix::sys::signal::{Signal, kill};

use super::becomes_confined;
use crate::{
    client::process::proc_file,
    confinement::{bits, field},
    scene::{Bed, DEADLINE},
};

#[test]
fn it_has_no_rights_and_removes_the_socket_when_the_daemon_ends() {
    let Some(bed) = Bed::new() else { return };
    let (pid, socket) = (
        bed.daemon.pid(),
        bed.namespace.run_directory().join("wireguard/wg0.sock"),
    );
    let keeper = keeper(pid);
    becomes_confined(keeper);
    // Before, SIGTERM ends the daemon without its having a say.
    let is_ready = || bed.daemon.log().contains("\"ready\"").then_some(());
    assert!(eventually(DEADLINE, is_ready).is_some());
    let status = proc_file(keeper, "status");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(bits(&status, set), 0, "{status}");
    }
    assert_eq!(field(&status, "Seccomp"), "2");
    // The daemon, and the places of the socket.
    let open = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count();
    assert_eq!(open, 3);
    // It does not end before the daemon.
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        kill(keeper, signal).unwrap();
    }
    kill(keeper, Signal::SIGSTOP).unwrap();
    kill(keeper, Signal::SIGCONT).unwrap();
    assert!(socket.exists());
    kill(pid, Signal::SIGTERM).unwrap();
    both_end([pid, keeper]);
    assert!(!socket.exists());
}

#[test]
fn it_ends_with_a_daemon_that_is_killed() {
    let Some(bed) = Bed::new() else { return };
    let pid = bed.daemon.pid();
    let keeper = keeper(pid);
    kill(pid, Signal::SIGKILL).unwrap();
    both_end([pid, keeper]);
}

fn keeper(daemon: Pid) -> Pid {
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap();
    Pid::from_raw(children.trim().parse().expect("one child"))
}

fn both_end(processes: [Pid; 2]) {
    let are_gone = || (!processes.iter().any(|pid| is_alive(*pid))).then_some(());
    assert!(eventually(DEADLINE, are_gone).is_some());
}
