//! On an interrupt, removes unfinished profiles and kills the running tools.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
};

use convoy_lab::Pid;
use nix::sys::signal::{Signal, killpg};

use crate::{Error, error::Step as _};

/// Exit status that a shell shows for an interrupted program.
const INTERRUPTED: i32 = 130;

static STATE: Mutex<State> = Mutex::new(State {
    profiles: Vec::new(),
    tools: Vec::new(),
});

struct State {
    /// Directories that were empty at the start of their profiles, and whether they were created for them.
    profiles: Vec<(PathBuf, bool)>,
    /// Each leads a process group and is killed with it: strace(1) first tests ptrace(2) on child processes,
    /// and a child that outlives it stays stopped for good.
    tools: Vec<Pid>,
}

/// From now on SIGINT, SIGTERM and SIGHUP discard the profile in `directory` and end the program. The
/// namespaces and tools die with the program.
pub(super) fn add(directory: &Path, is_new: bool) -> Result<(), Error> {
    let mut state = state();
    match ctrlc::set_handler(end) {
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => {}
        refused => refused.step("listen to signals")?,
    }
    state.profiles.push((directory.to_owned(), is_new));
    Ok(())
}

/// Marks the profile in `directory` as finished.
pub(super) fn keep(directory: &Path) {
    state().profiles.retain(|(other, _)| other != directory);
}

/// Removes the profile in `directory`, unless it is finished.
pub(super) fn discard(directory: &Path) {
    let mut state = state();
    let profiles = state
        .profiles
        .extract_if(.., |(other, _)| other == directory);
    profiles.for_each(remove);
}

fn remove((directory, is_new): (PathBuf, bool)) {
    let entries = fs::read_dir(&directory).into_iter().flatten();
    // An outer directory may hold finished profiles: directories stay.
    for entry in entries.flatten() {
        let _ = fs::remove_file(entry.path());
    }
    if is_new {
        let _ = fs::remove_dir(&directory);
    }
}

/// Starts a tool as the leader of a process group, unless an interrupt is ending the program.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut state = state();
    let child = command.process_group(0).spawn()?;
    state.tools.push(Pid::from_raw(child.id().cast_signed()));
    Ok(child)
}

/// Forgets a tool that has been waited for: its number may become another process's.
pub(super) fn forget(tool: Pid) {
    state().tools.retain(|&other| other != tool);
}

/// Kills a tool with all processes that it has started, unless it was forgotten.
pub(super) fn kill(tool: Pid) {
    let state = state();
    if state.tools.contains(&tool) {
        // killpg(2) fails if the whole group has ended.
        let _ = killpg(tool, Signal::SIGKILL);
    }
}

/// Keeps the lock, so that no further tool starts.
fn end() {
    let mut state = state();
    for &tool in &state.tools {
        let _ = killpg(tool, Signal::SIGKILL);
    }
    // The inner ones come last.
    state.profiles.drain(..).rev().for_each(remove);
    eprintln!("convoy: interrupted; the unfinished profile was removed");
    process::exit(INTERRUPTED);
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
