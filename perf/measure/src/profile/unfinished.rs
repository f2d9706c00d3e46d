//! Removes unfinished profiles and kills the tools at work when the program is interrupted.

use std::{
    fs, io, mem,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
};

use convoy_lab::Pid;
use nix::sys::signal::{Signal, killpg};

use crate::{Error, error::Step as _};

/// Exit status that a shell shows for a program that was interrupted.
const INTERRUPTED: i32 = 130;

static STATE: Mutex<State> = Mutex::new(State {
    is_handled: false,
    profiles: Vec::new(),
    tools: Vec::new(),
});

struct State {
    is_handled: bool,
    profiles: Vec<Unfinished>,
    /// Each leads a process group and is killed with it: strace(1) first tries ptrace(2) out in children,
    /// and one that outlives it stays stopped for good.
    tools: Vec<Pid>,
}

/// A directory that was empty when its profile was begun.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) directory: PathBuf,
    /// Whether it was made for the profile.
    pub(super) is_new: bool,
}

impl Unfinished {
    pub(super) fn discard(self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        // Below an outer directory there may be profiles that are finished: directories stay.
        for entry in entries.flatten() {
            let _ = fs::remove_file(entry.path());
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP discard the profile and end the program; namespaces and tools die
/// with it.
pub(super) fn add(profile: Unfinished) -> Result<(), Error> {
    let mut state = state();
    if !mem::replace(&mut state.is_handled, true) {
        ctrlc::set_handler(end).step("listen to signals")?;
    }
    state.profiles.push(profile);
    Ok(())
}

/// An interrupt no longer discards the profile in `directory`.
pub(super) fn take(directory: &Path) -> Option<Unfinished> {
    let mut state = state();
    let mut profiles = state.profiles.iter();
    let place = profiles.position(|profile| profile.directory == directory)?;
    Some(state.profiles.remove(place))
}

/// Starts a tool as the leader of a process group, unless an interrupt ends the program.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut state = state();
    let child = command.process_group(0).spawn()?;
    state.tools.push(Pid::from_raw(child.id().cast_signed()));
    Ok(child)
}

/// The tool has been waited for: its number may become another process's.
pub(super) fn forget(tool: Pid) {
    state().tools.retain(|&other| other != tool);
}

/// Kills a tool with all that it has started, unless it was forgotten.
pub(super) fn kill(tool: Pid) {
    let state = state();
    if state.tools.contains(&tool) {
        // killpg(2) fails where all of the group have ended.
        let _ = killpg(tool, Signal::SIGKILL);
    }
}

/// Keeps the lock, so that no tool starts any more.
fn end() {
    let mut state = state();
    for &tool in &state.tools {
        let _ = killpg(tool, Signal::SIGKILL);
    }
    // The inner ones come last.
    mem::take(&mut state.profiles)
        .into_iter()
        .rev()
        .for_each(Unfinished::discard);
    eprintln!("convoy: interrupted; the unfinished profile was removed");
    process::exit(INTERRUPTED);
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
