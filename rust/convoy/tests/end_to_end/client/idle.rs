//! A tunnel that nobody uses wakes nobody up, nor does a server of metrics that nobody asks.

use std::{
    thread,
    time::{Duration, Instant},
};

use convoy_lab::{Namespace, Pid, Turn};

use super::world::{BEHIND, EVERYTHING, World};
use crate::{
    confinement::{field, statuses},
    scene::processes,
};

const MINUTE: Duration = Duration::from_secs(60);
/// How often both processes may run in a minute.
pub(super) const MOST: u64 = 3;
/// Minutes until what a handshake leaves to do is done: the last of it is forgetting keys, after nine.
pub(super) const MINUTES: usize = 12;

#[test]
#[ignore = "make interop"]
fn an_idle_tunnel_hardly_ever_runs() {
    let _alone = Turn::alone("it counts context switches");
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let metrics = ["up", "--metrics", "unix:/run/convoy/wg0.metrics", "wg0"];
    world.convoy(&metrics).succeeds();
    let fresh = least(&world.client, 3);
    assert!(fresh <= MOST, "{fresh} context switches in a minute");
    world.reaches(BEHIND[0]);
    let used = least(&world.client, MINUTES);
    assert!(
        used <= MOST,
        "{used} context switches in a minute after use"
    );
}

/// Returns the fewest context switches of the client in one of up to `minutes` minutes; stops after the first minute
/// within the limit.
pub(super) fn least(client: &Namespace, minutes: usize) -> u64 {
    let mut seen = Vec::new();
    for _ in 0..minutes {
        let (pids, before) = (processes(client), switches(client));
        let end = Instant::now() + MINUTE;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            thread::sleep(left);
        }
        assert_eq!(processes(client), pids);
        seen.push(switches(client) - before);
        eprintln!("{seen:?}");
        if seen.last().is_some_and(|count| *count <= MOST) {
            break;
        }
    }
    seen.into_iter().min().unwrap()
}

/// Sums over all threads of both processes.
fn switches(client: &Namespace) -> u64 {
    let pids = processes(client);
    assert_eq!(pids.len(), 2, "{pids:?}");
    pids.into_iter().map(switches_of).sum()
}

fn switches_of(pid: Pid) -> u64 {
    let fields = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"];
    let of_thread = |status: &String| {
        let counts = fields.map(|name| field(status, name).parse::<u64>().unwrap());
        counts.iter().sum::<u64>()
    };
    statuses(pid).iter().map(of_thread).sum()
}
