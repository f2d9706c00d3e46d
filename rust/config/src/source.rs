//! The file that a configuration was read from: tells later whether it is still the same, and replaces it.
//!
//! Its directory stays open, so that no link that somebody puts on the path meanwhile leads elsewhere.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt, fchown},
    },
    path::{Path, PathBuf},
};

use blake2::{Blake2s256, Digest};
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open, openat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
    unistd::{LinkatFlags, Uid, UnlinkatFlags, linkat, unlinkat},
};

use crate::{
    MAX_FILE_BYTES,
    file_text::is_readable_by_others,
    open::{OpenError, ReadFile, read_no_link},
};

/// The file that a configuration was read from.
#[derive(Debug)]
pub struct Source {
    directory: OwnedFd,
    name: OsString,
    /// Without links.
    path: PathBuf,
    owner: u32,
    group: u32,
    mode: u32,
    fingerprint: [u8; 32],
}

/// The outcome of saving a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// In place of the former file.
    InPlace {
        /// The permissions that it has now, if it had to lose some: it has keys, and others could have read it.
        narrowed_to: Option<u32>,
    },
    /// In another file beside it, which only the owner can read: the former file is another one by now.
    Beside(PathBuf),
}

/// Why a file was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// It belongs to somebody else.
    #[error("{} belongs to user {uid}, neither to root nor to the caller", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Files beside one that was edited, at most.
const MOST_BESIDE: u32 = 1_000;

impl Source {
    /// The file that was read by `path`; `None` if another one is there already.
    pub(crate) fn of(path: &Path, read: &ReadFile) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        let name = path.file_name()?.to_owned();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path.parent()?, flags, Mode::empty()).ok()?;
        let found = fstatat(&directory, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let identity = |stat: &FileStat| (stat.st_dev, stat.st_ino);
        (identity(&found) == identity(&read.stat)).then(|| Self {
            directory,
            name,
            owner: read.stat.st_uid,
            group: read.stat.st_gid,
            mode: read.stat.st_mode & 0o7777,
            fingerprint: fingerprint(&read.bytes),
            path,
        })
    }

    /// Its path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The owner, if that is neither root nor the caller.
    #[must_use]
    pub fn foreign_owner(&self) -> Option<u32> {
        is_foreign(self.owner).then_some(self.owner)
    }

    /// Replaces the file by `text` in one step, if it is still as it was read; else writes a new file beside it. The
    /// owner stays, and so do the permissions, but no key comes into a file that others can read.
    ///
    /// # Errors
    /// If the file belongs to somebody else: then nothing is written.
    pub fn save(&self, text: &str, has_keys: bool) -> Result<Saved, SaveError> {
        self.checked(|| match self.is_still()? {
            true => self.replace(text, has_keys),
            false => self.write_beside(text),
        })
    }

    /// Writes `text` to a new file beside this one, which stays as it is; to none if this one has that text.
    ///
    /// # Errors
    /// As for [`Self::save`].
    pub fn save_beside(&self, text: &str) -> Result<Saved, SaveError> {
        let has_text = self.fingerprint == fingerprint(text.as_bytes());
        self.checked(|| match has_text && self.is_still()? {
            true => Ok(Saved::InPlace { narrowed_to: None }),
            false => self.write_beside(text),
        })
    }

    /// Removes what a crash left of a new file, which has keys in it.
    pub fn remove_unfinished(&self) {
        if self.foreign_owner().is_none() {
            self.remove_new();
        }
    }

    fn checked(&self, write: impl FnOnce() -> io::Result<Saved>) -> Result<Saved, SaveError> {
        let path = || self.path.clone();
        if let Some(uid) = self.foreign_owner() {
            return Err(SaveError::Foreign { path: path(), uid });
        }
        write().map_err(|error| SaveError::Io {
            path: path(),
            error,
        })
    }

    /// Returns whether the file at its place is the one that was read: no link, of the same owner and with the same
    /// text.
    fn is_still(&self) -> io::Result<bool> {
        let now = fstatat(
            &self.directory,
            self.name.as_os_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        let now = match now {
            Err(Errno::ENOENT) => return Ok(false),
            now => now?,
        };
        let kind = SFlag::from_bits_truncate(now.st_mode & SFlag::S_IFMT.bits());
        if kind != SFlag::S_IFREG || now.st_uid != self.owner {
            return Ok(false);
        }
        let name = Path::new(&self.name);
        match read_no_link(self.directory.as_fd(), name, MAX_FILE_BYTES) {
            Ok(read) => {
                let is_same = read.stat.st_ino == now.st_ino && read.stat.st_dev == now.st_dev;
                Ok(is_same && fingerprint(&read.bytes) == self.fingerprint)
            }
            Err(OpenError::Io(error)) if error.raw_os_error() != Some(Errno::ELOOP as i32) => {
                Err(error)
            }
            Err(_) => Ok(false),
        }
    }

    fn replace(&self, text: &str, has_keys: bool) -> io::Result<Saved> {
        let directory = fstat(&self.directory)?;
        let is_open = has_keys && is_readable_by_others(self.mode, directory.st_mode);
        let mode = if is_open {
            self.mode & !0o077
        } else {
            self.mode
        };
        self.write_new(text, mode)?;
        let new = self.name_of_new();
        renameat(
            &self.directory,
            new.as_os_str(),
            &self.directory,
            self.name.as_os_str(),
        )?;
        let narrowed_to = is_open.then_some(mode);
        Ok(Saved::InPlace { narrowed_to })
    }

    fn write_beside(&self, text: &str) -> io::Result<Saved> {
        self.write_new(text, 0o600)?;
        let new = self.name_of_new();
        let outcome = (1..=MOST_BESIDE).find_map(|number| {
            let name = self.name_beside(number);
            let linked = linkat(
                &self.directory,
                new.as_os_str(),
                &self.directory,
                name.as_os_str(),
                LinkatFlags::empty(),
            );
            match linked {
                Ok(()) => Some(Ok(Saved::Beside(self.path.with_file_name(name)))),
                // An earlier one stays.
                Err(Errno::EEXIST) => None,
                Err(errno) => Some(Err(errno.into())),
            }
        });
        self.remove_new();
        outcome.unwrap_or_else(|| Err(io::Error::other("too many files were saved beside it")))
    }

    fn write_new(&self, text: &str, mode: u32) -> io::Result<()> {
        self.remove_new();
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let flags = flags | OFlag::O_NOFOLLOW;
        let owner_only = Mode::S_IRUSR | Mode::S_IWUSR;
        let new = self.name_of_new();
        let file = openat(&self.directory, new.as_os_str(), flags, owner_only)?;
        let mut file = File::from(file);
        let mut written = || -> io::Result<()> {
            file.write_all(text.as_bytes())?;
            let ours = file.metadata()?;
            // A service may be forbidden to change owners.
            if (ours.uid(), ours.gid()) != (self.owner, self.group) {
                fchown(&file, Some(self.owner), Some(self.group))?;
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()
        };
        written().inspect_err(|_| self.remove_new())
    }

    fn remove_new(&self) {
        // It is almost never there.
        let name = self.name_of_new();
        let _ = unlinkat(
            &self.directory,
            name.as_os_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }

    /// The name of a new file until it is complete. Always the same, so that one that a crash left can be found.
    fn name_of_new(&self) -> OsString {
        with_end(&self.name, ".convoy-new")
    }

    fn name_beside(&self, number: u32) -> OsString {
        match number {
            1 => with_end(&self.name, ".saved"),
            _ => with_end(&self.name, &format!(".saved-{number}")),
        }
    }
}

fn with_end(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(end);
    name
}

fn is_foreign(uid: u32) -> bool {
    let owner = Uid::from_raw(uid);
    !owner.is_root() && owner != Uid::effective()
}

fn fingerprint(bytes: &[u8]) -> [u8; 32] {
    Blake2s256::digest(bytes).into()
}

#[cfg(test)]
mod tests;
