//! Decides whether hooks may run: they are commands, and the caller is often root.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, readlinkat},
    sys::stat::{FileStat, Mode, SFlag, fstat},
    unistd::Uid,
};

/// Why hooks may not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// A part of the path belongs to somebody else.
    #[error("{} belongs to user {uid}, neither to root nor to the caller", path.display())]
    Owner {
        /// The directory, symlink or file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others can write to a part of the path.
    #[error("others can write to {} (mode {mode:04o})", path.display())]
    Writable {
        /// The directory or file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The path leads to another file than the one that was read.
    #[error("{} was replaced while it was read", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The path could not be followed.
    #[error("cannot follow {}: {error}", path.display())]
    Unreachable {
        /// As far as it was followed.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
}

/// Returns whether the hooks of a file may run: nobody but root and the caller can have written them.
///
/// Every directory from `/` to the file, every symlink and the file itself belong to root or to the
/// caller (its effective uid), and neither their group nor others can write to directories and file. As
/// in OpenSSH, the sticky bit excuses nothing: hooks of files in `/tmp` do not run. Access control
/// lists count too, since the group's permissions are their upper limit.
///
/// Each part of the path is opened relative to the one before and examined by its descriptor; symlinks
/// are followed here, not by the kernel. So no part can be exchanged between test and use.
///
/// # Errors
/// The first part of the path that is not trusted.
pub fn hooks_are_trusted(path: &Path) -> Result<(), Untrusted> {
    walk(path).map(|_| ())
}

/// As [`hooks_are_trusted`], for a file that was read already.
pub(crate) fn hooks_of_are_trusted(path: &Path, read: &FileStat) -> Result<(), Untrusted> {
    let found = walk(path)?;
    match (found.st_dev, found.st_ino) == (read.st_dev, read.st_ino) {
        true => Ok(()),
        false => Err(Untrusted::Replaced { path: path.into() }),
    }
}

/// As in the kernel.
const MAX_SYMLINKS: usize = 40;

/// A position on the way from `/` to a file.
struct Walk {
    /// Open with O_PATH.
    here: OwnedFd,
    /// For messages.
    path: PathBuf,
    /// The components still to be followed; `..` included.
    ahead: VecDeque<OsString>,
    symlinks: usize,
}

/// Follows a path and examines all of it; returns the status of its target.
fn walk(path: &Path) -> Result<FileStat, Untrusted> {
    let unreachable = |error: io::Error| Untrusted::Unreachable {
        path: path.into(),
        error: error.to_string(),
    };
    let path = std::path::absolute(path).map_err(unreachable)?;
    let root = open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    let mut walk = Walk {
        here: root.map_err(|errno| unreachable(errno.into()))?,
        path: PathBuf::from("/"),
        ahead: VecDeque::new(),
        symlinks: 0,
    };
    walk.prepend(&path);
    let mut stat = walk.examine()?;
    while let Some(name) = walk.ahead.pop_front() {
        stat = walk.step(&name)?;
    }
    Ok(stat)
}

impl Walk {
    /// Goes to `name` in the current directory, or to where it leads if it is a symlink.
    fn step(&mut self, name: &OsString) -> Result<FileStat, Untrusted> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let next = openat(&self.here, name.as_os_str(), flags, Mode::empty());
        let next = next.map_err(|errno| self.unreachable_at(name, errno))?;
        let directory = std::mem::replace(&mut self.here, next);
        let above = self.path.clone();
        self.path = match name.as_bytes() {
            b".." => above.parent().unwrap_or(&above).to_owned(),
            _ => above.join(name),
        };
        let stat = self.examine()?;
        if !is(&stat, SFlag::S_IFLNK) {
            return Ok(stat);
        }
        self.symlinks += 1;
        if self.symlinks > MAX_SYMLINKS {
            return Err(self.unreachable_at(name, Errno::ELOOP));
        }
        // With an empty path, the link that is open.
        let target = readlinkat(&self.here, "");
        let target = target.map_err(|errno| self.unreachable_at(name, errno))?;
        self.here = directory;
        self.path = above;
        self.prepend(Path::new(&target));
        if Path::new(&target).is_absolute() {
            let root = open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
            self.here = root.map_err(|errno| self.unreachable_at(name, errno))?;
            self.path = PathBuf::from("/");
        }
        Ok(stat)
    }

    /// Puts the components of `path` before those still ahead.
    fn prepend(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.ahead.push_front(name.to_owned()),
                Component::ParentDir => self.ahead.push_front(OsString::from("..")),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
    }

    fn examine(&self) -> Result<FileStat, Untrusted> {
        let stat = fstat(&self.here).map_err(|errno| Untrusted::Unreachable {
            path: self.path.clone(),
            error: errno.desc().to_owned(),
        })?;
        let path = self.path.clone();
        let owner = Uid::from_raw(stat.st_uid);
        if !owner.is_root() && owner != Uid::effective() {
            let uid = stat.st_uid;
            return Err(Untrusted::Owner { path, uid });
        }
        // A symlink has no permissions.
        let is_symlink = is(&stat, SFlag::S_IFLNK);
        let mode = stat.st_mode & 0o7777;
        if mode & 0o022 != 0 && !is_symlink {
            return Err(Untrusted::Writable { path, mode });
        }
        Ok(stat)
    }

    fn unreachable_at(&self, name: &OsString, errno: Errno) -> Untrusted {
        Untrusted::Unreachable {
            path: self.path.join(name),
            error: errno.desc().to_owned(),
        }
    }
}

fn is(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == kind
}

#[cfg(test)]
mod tests;
