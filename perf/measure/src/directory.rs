//! The directory that a profile is written to: nothing half-written stays in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{ProfileError, at_work::AtWork};

/// All that a profile may write there.
const FILES: [&str; 9] = [
    "perf.data",
    "stat.txt",
    "syscalls.txt",
    "profile.perf",
    "flamegraph.svg",
    "flamegraph-diff.svg",
    "syscalls.json",
    "stat.json",
    "shares.json",
];
/// Written last: with it the profile is whole.
const LAST: &str = "report.md";

/// An empty directory; what is in it goes again, unless a whole profile has been written.
#[derive(Debug)]
pub struct Directory {
    unfinished: Unfinished,
}

/// A profile that is being written.
#[derive(Debug, Clone)]
pub struct Unfinished {
    path: PathBuf,
    is_new: bool,
    is_whole: Arc<AtomicBool>,
    /// The tools that write it.
    at_work: AtWork,
}

impl Directory {
    /// Makes the directory `path`, or takes it if it is empty.
    ///
    /// # Errors
    ///
    /// When it is not empty, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(ProfileError::file(path))?;
        let mut entries = fs::read_dir(path).map_err(ProfileError::file(path))?;
        if entries.next().is_some() {
            let path = path.to_owned();
            return Err(ProfileError::NotEmpty { path });
        }
        let directory = Self {
            unfinished: Unfinished {
                path: path.to_owned(),
                is_new,
                is_whole: Arc::default(),
                at_work: AtWork::default(),
            },
        };
        // Before the load, not after it, is the time to find out.
        directory.write(FILES[0], b"")?;
        directory.remove(FILES[0])?;
        Ok(directory)
    }

    pub(crate) fn file(&self, name: &'static str) -> PathBuf {
        debug_assert!(name == LAST || FILES.contains(&name));
        self.unfinished.path.join(name)
    }

    /// What to discard when the program is interrupted.
    #[must_use]
    pub fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }

    pub(crate) fn at_work(&self) -> &AtWork {
        &self.unfinished.at_work
    }

    pub(crate) fn write(&self, name: &'static str, bytes: &[u8]) -> Result<(), ProfileError> {
        let path = self.file(name);
        fs::write(&path, bytes).map_err(ProfileError::file(path))
    }

    pub(crate) fn read(&self, name: &'static str) -> Result<String, ProfileError> {
        let path = self.file(name);
        fs::read_to_string(&path).map_err(ProfileError::file(path))
    }

    /// Removes what is of no more use.
    pub(crate) fn remove(&self, name: &'static str) -> Result<(), ProfileError> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ProfileError::file(path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The profile is whole.
    pub(crate) fn keep(self) {
        self.unfinished.is_whole.store(true, Ordering::Relaxed);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.unfinished.discard();
    }
}

impl Unfinished {
    /// Ends the tools, and removes what has been written so far, unless the profile is whole by now.
    pub fn discard(&self) {
        if self.is_whole.load(Ordering::Relaxed) {
            return;
        }
        self.at_work.close();
        // What cannot be removed was not written, or somebody else has removed it.
        for name in FILES.into_iter().chain([LAST]) {
            let _ = fs::remove_file(self.path.join(name));
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_old_files_is_refused_and_left_alone() {
        let old = tempfile::tempdir().unwrap();
        let file = old.path().join("profile.perf");
        fs::write(&file, "old").unwrap();
        let error = Directory::open(old.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty (fix: "), "{error}");
        assert_eq!(fs::read_to_string(file).unwrap(), "old");
    }

    #[test]
    fn an_interrupt_lets_no_tool_start_any_more() {
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::open(outer.path()).unwrap();
        directory.unfinished().discard();
        let mut tool = std::process::Command::new("true");
        assert!(directory.at_work().spawn(&mut tool).is_err());
    }

    #[test]
    fn what_is_not_whole_does_not_stay() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("new");
        let directory = Directory::open(&path).unwrap();
        directory.write("profile.perf", b"half").unwrap();
        drop(directory);
        assert!(!path.exists());
        drop(Directory::open(outer.path()).unwrap());
        assert!(outer.path().exists(), "it was there before");
    }

    #[test]
    fn what_is_whole_stays() {
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::open(outer.path()).unwrap();
        directory.write("report.md", b"whole").unwrap();
        directory.remove("perf.data").unwrap();
        directory.remove("perf.data").unwrap();
        let unfinished = directory.unfinished().clone();
        directory.keep();
        unfinished.discard();
        assert!(outer.path().join("report.md").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let outer = tempfile::tempdir().unwrap();
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Directory::open(&file.join("inside"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("file/inside"), "{error}");
    }
}
