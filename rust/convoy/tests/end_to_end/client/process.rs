//! The two processes of a tunnel, and what `convoy status` says of it.

use std::fs;

use convoy_lab::{Pid, eventually, measure::process::is_alive};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use super::world::World;
use crate::scene::{DEADLINE, convoy_program, output_of, processes};

impl World {
    /// Returns wg0 as `convoy status wg0 --json` describes it.
    pub(super) fn status(&self) -> Value {
        let said = self.convoy(&["status", "wg0", "--json"]);
        let parsed = serde_json::from_str::<Value>(&said.stdout);
        let mut status = parsed.unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert_eq!(status["interfaces"][0]["name"], "wg0", "{said:?}");
        status["interfaces"][0].take()
    }

    /// Waits until it says this of wg0, even if that is still coming up.
    pub(super) fn status_becomes(&self, field: &str, value: impl Into<Value>) {
        let value = value.into();
        let mut last = Value::Null;
        let is_so = || {
            let said = self.convoy(&["status", "wg0", "--json"]).stdout;
            last = serde_json::from_str(&said).unwrap_or_default();
            (last["interfaces"][0][field] == value).then_some(())
        };
        assert!(
            eventually(DEADLINE, is_so).is_some(),
            "{field} is not {value}: {last}"
        );
    }

    pub(super) fn supervisor(&self) -> Pid {
        self.pid("supervisor_pid")
    }

    pub(super) fn tunnel(&self) -> Pid {
        self.pid("tunnel_pid")
    }

    fn pid(&self, field: &str) -> Pid {
        let status = self.status();
        let pid = status[field].as_i64();
        let pid = pid.unwrap_or_else(|| panic!("no {field} in {status}"));
        Pid::from_raw(i32::try_from(pid).unwrap())
    }

    /// A line of `wg show wg0 dump`, in fields; line 0 is the interface, line 1 the first peer.
    pub(super) fn wg(&self, line: usize) -> Vec<String> {
        let dump = output_of(&self.client, "wg", &["show", "wg0", "dump"]);
        let line = dump.lines().nth(line).unwrap();
        line.split('\t').map(str::to_owned).collect()
    }

    /// The endpoint of the client's first peer.
    pub(super) fn endpoint(&self) -> String {
        self.wg(1).swap_remove(2)
    }

    /// Returns the time of the handshake of the client's first peer, which tells its session from others.
    pub(super) fn session(&self) -> String {
        self.wg(1).swap_remove(4)
    }

    /// Waits until the client's first peer has this endpoint.
    pub(super) fn is_at(&self, endpoint: &str) {
        let is_there = || (self.endpoint() == endpoint).then_some(());
        assert!(
            eventually(3 * DEADLINE, is_there).is_some(),
            "not at {endpoint}: {}",
            self.status()
        );
    }
}

/// Kills a process as a crash does, and waits until it is dead.
pub(super) fn crash(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
    let is_dead = || (!is_alive(pid)).then_some(());
    assert!(eventually(DEADLINE, is_dead).is_some());
}

/// The client's own processes of `convoy` with this command.
pub(super) fn running(world: &World, command: &str) -> Vec<Pid> {
    let is_it = |pid: &Pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split('\0');
        let is_convoy = words.next() == convoy_program().to_str();
        is_convoy && words.next() == Some(command)
    };
    processes(&world.client).into_iter().filter(is_it).collect()
}

/// Kills everything that runs at the client.
pub(super) fn kill_all(world: &World) {
    let mut killed = Vec::new();
    let are_dead = || {
        let all = processes(&world.client);
        for pid in &all {
            // It may have ended meanwhile.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        killed.extend(&all);
        // A dying process leaves its namespaces before it lets go of sockets and locks.
        let is_over = all.is_empty() && !killed.iter().any(|pid| is_alive(*pid));
        is_over.then_some(())
    };
    assert!(eventually(DEADLINE, are_dead).is_some());
}

/// A file of /proc/PID.
pub(super) fn proc_file(pid: Pid, name: &str) -> String {
    let content = fs::read(format!("/proc/{pid}/{name}")).unwrap();
    String::from_utf8_lossy(&content).into_owned()
}
