//! The directory of a profile, in which nothing unfinished remains, also after an interrupt.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use convoy_lab::Pid;
use nix::sys::signal::{Signal, killpg};

/// Exit status that a shell shows for an interrupted program.
const INTERRUPTED: i32 = 130;

/// A file that shows whether there is room, and its length: a tool writes more.
const PROBE: &str = ".probe";
const PROBE_BYTES: usize = 64 << 10;

/// Directories of unfinished profiles, the inner ones last, and whether they were created for them.
static UNFINISHED: Mutex<Vec<(PathBuf, bool)>> = Mutex::new(Vec::new());
/// The tool that runs.
static TOOL: Mutex<Option<Pid>> = Mutex::new(None);

/// An output directory that was empty: its files are removed unless the profile is finished.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates the directory `path`, or takes it if it is empty. From now on SIGINT, SIGTERM and SIGHUP discard the
    /// profile and end the program; the namespaces and tools die with it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        let shown = path.display();
        fs::create_dir_all(path).with_context(|| shown.to_string())?;
        let mut entries = fs::read_dir(path).with_context(|| shown.to_string())?;
        ensure!(
            entries.next().is_none(),
            "{shown} is not empty (fix: name another directory, or remove it)"
        );
        match ctrlc::set_handler(end) {
            Ok(()) | Err(ctrlc::Error::MultipleHandlers) => {}
            refused => refused.context("listen to signals")?,
        }
        lock(&UNFINISHED).push((path.to_owned(), is_new));
        let directory = Self(path.to_owned());
        // A directory that cannot be written must fail before the load, not after it.
        directory.probe()?;
        Ok(directory)
    }

    /// Fails if nothing more can be written, as on a full disk.
    pub(super) fn probe(&self) -> Result<()> {
        let written = self.write(PROBE, &[0; PROBE_BYTES]);
        self.remove(PROBE)?;
        written
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.file(name);
        fs::write(&path, bytes).with_context(|| path.display().to_string())
    }

    pub(super) fn write_json(&self, name: &str, value: &impl serde::Serialize) -> Result<()> {
        let json = serde_json::to_string_pretty(value)?;
        self.write(name, (json + "\n").as_bytes())
    }

    /// Reads a file that a tool has written, and removes it.
    pub(super) fn take(&self, name: &str) -> Result<String> {
        let path = self.file(name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        self.remove(name)?;
        Ok(text)
    }

    /// Removes a file if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| path.display().to_string()),
        }
    }

    /// Marks the profile as finished: its files stay.
    pub(super) fn keep(self) {
        lock(&UNFINISHED).retain(|(path, _)| *path != self.0);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let mut unfinished = lock(&UNFINISHED);
        let own = unfinished.extract_if(.., |(path, _)| *path == self.0);
        own.for_each(discard);
    }
}

fn discard((path, is_new): (PathBuf, bool)) {
    let entries = fs::read_dir(&path).into_iter().flatten();
    // An outer directory may hold finished profiles: directories stay.
    for entry in entries.flatten() {
        let _ = fs::remove_file(entry.path());
    }
    if is_new {
        let _ = fs::remove_dir(&path);
    }
}

/// Starts the only tool as the leader of a process group, unless an interrupt is ending the program.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut tool = lock(&TOOL);
    let child = command.process_group(0).spawn()?;
    *tool = Some(Pid::from_raw(child.id().cast_signed()));
    Ok(child)
}

/// Forgets the tool, which has been waited for: its number may become another process's.
pub(super) fn forget_tool() {
    *lock(&TOOL) = None;
}

/// Discards all profiles and ends the program. Keeps the lock, so that no further tool starts.
fn end() {
    let tool = lock(&TOOL);
    // With its group: strace(1) first tests ptrace(2) on child processes, and one that outlives it stays stopped.
    tool.map(|tool| killpg(tool, Signal::SIGKILL));
    lock(&UNFINISHED).drain(..).rev().for_each(discard);
    eprintln!("convoy: interrupted; the unfinished profile was removed");
    process::exit(INTERRUPTED);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_profile_stays_and_an_unfinished_one_goes() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("new");
        let directory = Directory::open(&path).unwrap();
        directory.write("profile.perf", b"half").unwrap();
        drop(directory);
        assert!(!path.exists());
        drop(Directory::open(outer.path()).unwrap());
        assert!(outer.path().exists(), "it existed before");
        Directory::open(&path).unwrap().keep();
        assert!(path.exists());
    }
}
