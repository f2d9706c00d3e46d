//! Opens and reads files without waiting for anything but a disk.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::{FileStat, Mode, SFlag, fstat},
};
use zeroize::Zeroizing;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// It, or a directory on its path, does not exist.
    #[error("it does not exist")]
    Absent,
    /// The caller may not read it.
    #[error("permission denied")]
    Denied,
    /// It is no regular file, but this.
    #[error("it is {0}, not a regular file")]
    NotAFile(&'static str),
    /// It has more bytes than this.
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A file that was read.
pub(crate) struct ReadFile {
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) stat: FileStat,
}

/// Reads a regular file of at most `limit` bytes; a relative path begins at `directory`.
pub(crate) fn read_file(
    directory: BorrowedFd<'_>,
    path: &Path,
    limit: usize,
) -> Result<ReadFile, OpenError> {
    read_file_with(directory, path, limit, OFlag::empty())
}

/// As [`read_file`], but a symbolic link is not followed.
pub(crate) fn read_no_link(
    directory: BorrowedFd<'_>,
    path: &Path,
    limit: usize,
) -> Result<ReadFile, OpenError> {
    read_file_with(directory, path, limit, OFlag::O_NOFOLLOW)
}

fn read_file_with(
    directory: BorrowedFd<'_>,
    path: &Path,
    limit: usize,
    more: OFlag,
) -> Result<ReadFile, OpenError> {
    // O_NONBLOCK: opening a FIFO would wait for its writer.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = openat(directory, path, flags | more, Mode::empty())?;
    let stat = fstat(&file)?;
    if let Some(kind) = kind_unless_regular(&stat) {
        return Err(OpenError::NotAFile(kind));
    }
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if size > limit {
        return Err(OpenError::TooLarge(limit));
    }
    // A vector that grows would leave copies of keys behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(size + 1));
    let mut file = File::from(file).take(limit as u64 + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(OpenError::TooLarge(limit));
    }
    Ok(ReadFile { bytes, stat })
}

/// Reads at most `limit` bytes of a regular file that may have more.
pub(crate) fn read_start(
    directory: impl AsFd,
    path: &Path,
    limit: usize,
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, path, flags, Mode::empty())?);
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a directory to read files relative to it.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, OpenError> {
    Ok(open(path, DIRECTORY, Mode::empty())?)
}

/// Opens a directory within another.
pub(crate) fn open_directory_in(directory: impl AsFd, path: &str) -> Result<OwnedFd, OpenError> {
    Ok(openat(directory, path, DIRECTORY, Mode::empty())?)
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

fn kind_unless_regular(stat: &FileStat) -> Option<&'static str> {
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => None,
        SFlag::S_IFDIR => Some("a directory"),
        SFlag::S_IFIFO => Some("a FIFO"),
        SFlag::S_IFSOCK => Some("a socket"),
        SFlag::S_IFCHR | SFlag::S_IFBLK => Some("a device"),
        _ => Some("something else"),
    }
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => Self::Absent,
            Errno::EACCES | Errno::EPERM => Self::Denied,
            // How the system refuses to open a socket.
            Errno::ENXIO => Self::NotAFile("a socket or device"),
            other => Self::Io(other.into()),
        }
    }
}
