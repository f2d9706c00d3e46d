//! The directory of a profile, in which nothing unfinished remains.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::unfinished;
use crate::{Error, error::Step as _};

/// An output directory that was empty: its files are removed unless the profile is finished.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates the directory `path`, or takes it if it is empty.
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
        unfinished::add(path, is_new)?;
        let directory = Self(path.to_owned());
        // A directory that cannot be written must fail before the load, not after it.
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

    /// Removes a file if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).step(path.display())
            }
            _ => Ok(()),
        }
    }

    /// Marks the profile as finished: its files stay.
    pub(super) fn keep(self) {
        unfinished::keep(&self.0);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        unfinished::discard(&self.0);
    }
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
