//! `NAME.d`: a directory of peers that other programs write.
//!
//! A set of files is taken whole, the old one or the new one:
//!
//! - A Kubernetes ConfigMap or Secret replaces its files by moving one symlink, `..data`, from one
//!   directory to another. The link is followed once; everything is then read within that directory. The
//!   old directory's files may vanish meanwhile, so the link is compared afterwards.
//! - confd and consul-template replace files one by one by renaming. Each file is then whole, and the
//!   directory is read again if anything in it has changed meanwhile.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    fcntl::AtFlags,
    sys::stat::{FileStat, fstat, fstatat},
};

use crate::{
    MAX_DROP_INS,
    open::{OpenError, open_directory, open_directory_in},
};

/// An open `NAME.d` and its contents.
pub(crate) struct DropIns {
    path: PathBuf,
    /// The directory with the files: `NAME.d`, or that to which `..data` leads.
    directory: OwnedFd,
    seen: Seen,
}

/// Tells one state of a directory from another.
#[derive(PartialEq, Eq)]
struct Seen {
    directories: [State; 2],
    /// The files to read, in byte order; no state for a symlink that leads nowhere.
    files: Vec<(OsString, Option<State>)>,
}

/// Tells one state of a file from another.
#[derive(PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl DropIns {
    /// Opens `NAME.d`; `None` if there is none.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, OpenError> {
        let outer = match open_directory(path) {
            Err(OpenError::Absent) => return Ok(None),
            outer => outer?,
        };
        let inner = match open_directory_in(&outer, "..data") {
            Err(OpenError::Absent) => outer.try_clone()?,
            inner => inner?,
        };
        let seen = Seen {
            directories: [identity(&fstat(&outer)?), identity(&fstat(&inner)?)],
            files: list(&inner)?,
        };
        Ok(Some(Self {
            path: path.to_owned(),
            directory: inner,
            seen,
        }))
    }

    /// The names of the files to read, in byte order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &OsStr> {
        self.seen.files.iter().map(|(name, _)| name.as_os_str())
    }

    /// The directory that the names are relative to.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Returns whether the path still leads to the same files, and none of them has changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        let now = Self::open(&self.path);
        now.is_ok_and(|now| now.is_some_and(|now| now.seen == self.seen))
    }
}

fn list(directory: &OwnedFd) -> Result<Vec<(OsString, Option<State>)>, OpenError> {
    // Not a duplicate of the descriptor: that would share the position in the listing.
    let mut dir = Dir::from_fd(open_directory_in(directory, ".")?)?;
    let mut files = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name.as_bytes().starts_with(b".") || !name.as_bytes().ends_with(b".conf") {
            continue;
        }
        if files.len() == MAX_DROP_INS {
            let error = format!("it has more than {MAX_DROP_INS} files");
            return Err(std::io::Error::other(error).into());
        }
        let state = fstatat(directory, name, AtFlags::empty());
        files.push((name.to_owned(), state.ok().as_ref().map(State::of)));
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

impl State {
    fn of(stat: &FileStat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// Identifies a directory, without its times, which change with files that do not matter.
fn identity(stat: &FileStat) -> State {
    State {
        size: 0,
        modified: (0, 0),
        changed: (0, 0),
        ..State::of(stat)
    }
}
