//! The directory that a profile is written to. Nothing half-written stays in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::unfinished::{self, Unfinished};
use crate::{Error, error::Step as _};

/// A directory that was empty: its files go again unless the profile is finished.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Makes the directory `path`, or takes it if it is empty.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let is_new = !path.exists();
        fs::create_dir_all(path).step(path.display())?;
        let mut entries = fs::read_dir(path).step(path.display())?;
        if entries.next().is_some() {
            return Err(Error::Refused(format!(
                "{} is not empty (fix: name another directory, or remove it)",
                path.display()
            )));
        }
        unfinished::add(Unfinished {
            directory: path.to_owned(),
            is_new,
        })?;
        let directory = Self(path.to_owned());
        // A directory that cannot be written is found out before the load, not after it.
        directory.write(".probe", b"")?;
        directory.remove(".probe")?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.file(name);
        fs::write(&path, bytes).step(path.display())
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
        let path = self.file(name);
        let text = fs::read_to_string(&path).step(path.display())?;
        self.remove(name)?;
        Ok(text)
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).step(path.display())
            }
            _ => Ok(()),
        }
    }

    /// The profile is finished: its files stay.
    pub(super) fn keep(self) {
        unfinished::take(&self.0);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(unfinished) = unfinished::take(&self.0) {
            unfinished.discard();
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
        let error = Directory::open(old.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty (fix: "), "{error}");
        let error = Directory::open(&file.join("inside")).unwrap_err();
        assert!(error.to_string().contains("profile.perf/inside"), "{error}");
        assert_eq!(fs::read_to_string(file).unwrap(), "old");
    }

    #[test]
    fn a_finished_profile_stays_and_an_unfinished_one_goes() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("new");
        let directory = Directory::open(&path).unwrap();
        directory.write("profile.perf", b"half").unwrap();
        drop(directory);
        assert!(!path.exists());
        drop(Directory::open(outer.path()).unwrap());
        assert!(outer.path().exists(), "it was there before");
        Directory::open(&path).unwrap().keep();
        assert!(path.exists());
    }
}
