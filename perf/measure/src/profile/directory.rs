//! The directory that a profile is written to. Nothing half-written stays in it.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use convoy_lab::Pid;
use nix::sys::signal::{Signal, killpg};

use crate::{Error, error::Step as _};

/// Exit status that a shell shows for a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// Every profile of this process: an interrupt discards those that are unfinished.
static PROFILES: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// A directory that was empty. Its files go again unless the profile is finished.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    unfinished: Unfinished,
}

/// The files of a profile and the tools that write them, shared with the interrupt handler.
#[derive(Debug, Clone, Default)]
pub(super) struct Unfinished(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: Vec<PathBuf>,
    /// The directory, if it was made for the profile.
    made: Option<PathBuf>,
    /// Each tool leads a process group and is killed with it: strace(1) first tries ptrace(2) out in
    /// children, and one that outlives it stays stopped for good.
    tools: Vec<Pid>,
    is_over: bool,
}

impl Directory {
    /// Makes the directory `path`, or takes it if it is empty.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(Error::file(path))?;
        let mut entries = fs::read_dir(path).map_err(Error::file(path))?;
        if entries.next().is_some() {
            return Err(Error::NotEmpty(path.to_owned()));
        }
        let directory = Self {
            path: path.to_owned(),
            unfinished: Unfinished::default(),
        };
        directory.unfinished.lock().made = is_new.then(|| path.to_owned());
        discard_on_interrupt(directory.unfinished.clone())?;
        // A directory that cannot be written is found out before the load, not after it.
        directory.write(".probe", b"")?;
        directory.remove(".probe")?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }

    /// Where the file `name` is to be written.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        self.unfinished.lock().files.push(path.clone());
        path
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.file(name);
        fs::write(&path, bytes).map_err(Error::file(path))
    }

    pub(super) fn write_json(
        &self,
        name: &str,
        value: &impl serde::Serialize,
    ) -> Result<(), Error> {
        let json = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
        self.write(name, (json + "\n").as_bytes())
    }

    /// Reads a file that a tool has written, and removes it.
    pub(super) fn take(&self, name: &str) -> Result<String, Error> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(Error::file(path))?;
        self.remove(name)?;
        Ok(text)
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path)(error)),
            _ => Ok(()),
        }
    }

    /// The profile is finished: its files stay.
    pub(super) fn keep(self) {
        self.unfinished.lock().is_over = true;
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.unfinished.discard();
    }
}

impl Unfinished {
    /// Starts a tool as the leader of a process group; fails after [`Unfinished::discard`].
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = self.lock();
        if state.is_over {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = command.process_group(0).spawn()?;
        state.tools.push(Pid::from_raw(child.id().cast_signed()));
        Ok(child)
    }

    /// The tool has been waited for: its number may become another process's.
    pub(super) fn forget(&self, tool: Pid) {
        self.lock().tools.retain(|&other| other != tool);
    }

    /// Kills a tool with all that it has started, unless it was forgotten.
    pub(super) fn kill(&self, tool: Pid) {
        let state = self.lock();
        // killpg(2) fails where all of the group have ended.
        let _ = state
            .tools
            .contains(&tool)
            .then(|| killpg(tool, Signal::SIGKILL));
    }

    /// Kills the tools and removes the files so far, unless the profile is finished.
    pub(super) fn discard(&self) {
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        state.is_over = true;
        for &tool in &state.tools {
            let _ = killpg(tool, Signal::SIGKILL);
        }
        // A file that cannot be removed was not written, or somebody else has removed it.
        for file in &state.files {
            let _ = fs::remove_file(file);
        }
        let _ = state.made.as_ref().map(fs::remove_dir);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP discard `unfinished` and end the program; namespaces and tools die with
/// it.
fn discard_on_interrupt(unfinished: Unfinished) -> Result<(), Error> {
    let mut profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    profiles.push(unfinished);
    if profiles.len() > 1 {
        return Ok(());
    }
    let end = || {
        let profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.iter().for_each(Unfinished::discard);
        eprintln!("convoy: interrupted; the unfinished profile was removed");
        process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(end).step("listen to signals")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_old_files_is_refused_and_left_alone() {
        let old = tempfile::tempdir().unwrap();
        let file = old.path().join("profile.perf");
        fs::write(&file, "old").unwrap();
        let error = Directory::open(old.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty (fix: "), "{error}");
        let error = Directory::open(&file.join("inside")).unwrap_err();
        assert!(error.to_string().contains("profile.perf/inside"), "{error}");
        assert_eq!(fs::read_to_string(file).unwrap(), "old");
    }

    #[test]
    fn an_unfinished_profile_does_not_stay_and_starts_no_tool_any_more() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("new");
        let directory = Directory::open(&path).unwrap();
        directory.write("profile.perf", b"half").unwrap();
        let unfinished = directory.unfinished().clone();
        drop(directory);
        assert!(!path.exists());
        assert!(unfinished.spawn(&mut Command::new("true")).is_err());
        drop(Directory::open(outer.path()).unwrap());
        assert!(outer.path().exists(), "it was there before");
    }

    #[test]
    fn a_finished_profile_stays() {
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::open(outer.path()).unwrap();
        directory.write("report.md", b"whole").unwrap();
        directory.remove("perf.data").unwrap();
        let unfinished = directory.unfinished().clone();
        directory.keep();
        unfinished.discard();
        assert!(outer.path().join("report.md").exists());
    }
}
