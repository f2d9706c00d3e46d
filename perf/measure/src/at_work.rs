//! The tools that look at daemons just now.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use convoy_lab::Pid;
use nix::sys::signal::{Signal, killpg};

/// Each tool leads a process group, and is killed with all of it: strace(1) tries ptrace(2) out in children
/// first, and one that is left alone meanwhile stays stopped for good, traced by init(1).
#[derive(Debug, Clone, Default)]
pub(crate) struct AtWork(Arc<Mutex<Groups>>);

#[derive(Debug, Default)]
struct Groups {
    leaders: Vec<Pid>,
    is_closed: bool,
}

impl AtWork {
    /// Starts `command` as the leader of a group. Fails after [`AtWork::close`].
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut groups = self.lock();
        if groups.is_closed {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = command.process_group(0).spawn()?;
        groups.leaders.push(Pid::from_raw(child.id().cast_signed()));
        Ok(child)
    }

    /// The tool has been waited for: its number may become another process's.
    pub(crate) fn forget(&self, leader: Pid) {
        self.lock().leaders.retain(|&other| other != leader);
    }

    /// Kills the tool and what it has started, unless it was forgotten.
    pub(crate) fn kill(&self, leader: Pid) {
        let groups = self.lock();
        if groups.leaders.contains(&leader) {
            kill_group(leader);
        }
    }

    /// Kills all of them, and lets none start any more.
    pub(crate) fn close(&self) {
        let mut groups = self.lock();
        groups.is_closed = true;
        groups.leaders.iter().copied().for_each(kill_group);
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kill_group(leader: Pid) {
    // It fails where all of the group have ended.
    let _ = killpg(leader, Signal::SIGKILL);
}
