//! Unix sockets with a file: who may use them, and when the file is removed.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd, RawFd},
        unix::{
            fs::{DirBuilderExt, FileTypeExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
        stat::{FileStat, Mode, fstat, fstatat, umask},
    },
    unistd::{UnlinkatFlags, geteuid, unlinkat},
};
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// Time limit for a daemon whose interface is gone to end.
pub const ENDING_TIME: Duration = Duration::from_secs(2);
/// Interval between checks whether it has ended.
pub const ENDING_PAUSE: Duration = Duration::from_millis(10);

/// Time limit for a killed process to close its socket.
const DYING_TIME: Duration = Duration::from_millis(100);

/// Fails if a running daemon listens on `path`. Waits for one that is dying, or for which
/// `is_ending` returns true.
pub fn ensure_unused(path: &Path, is_ending: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + ENDING_TIME;
    loop {
        let hangs_up = match connect_within(path, ENDING_TIME) {
            Ok(connection) => is_ending() || hangs_up(connection),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_ending(),
            Err(_) => return Ok(()),
        };
        if !hangs_up || Instant::now() > deadline {
            bail!("{} is already in use by a running daemon", path.display());
        }
        thread::sleep(ENDING_PAUSE);
    }
}

/// Connects to the socket at `path`.
///
/// # Errors
/// `WouldBlock` if its owner does not make room for another connection in this time: it accepts none any more.
pub fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path)?;
    let stream = UnixStream::from(socket);
    // It bounds the wait for room, too (unix(7), socket(7)).
    stream.set_write_timeout(Some(limit))?;
    while let Err(errno) = connect(stream.as_raw_fd(), &address) {
        if errno != Errno::EINTR {
            return Err(errno.into());
        }
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Returns whether something listens at `path`, even if it hangs.
#[must_use]
pub fn listens(path: &Path) -> bool {
    match connect_within(path, ENDING_PAUSE) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Returns whether the other end closes the connection; a running daemon waits for a request.
pub fn hangs_up(mut connection: UnixStream) -> bool {
    let read = connection
        .set_read_timeout(Some(DYING_TIME))
        .and_then(|()| connection.read(&mut [0]));
    !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Fails if something other than a socket is in the way of one at `path`.
pub fn ensure_bindable(path: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot listen on {}", path.display());
    match fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => Ok(()),
        Ok(_) => bail!("{}: the file exists and is not a socket", context()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(context),
    }
}

/// Listens on `path`, for the owner only. Replaces a socket file that nobody listens on.
pub fn bind(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    let context = || format!("cannot listen on {}", path.display());
    if let Some(directory) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        let created = builder.recursive(true).mode(0o755).create(directory);
        created.with_context(context)?;
    }
    ensure_unused(path, || false)?;
    remove_stale(path).with_context(context)?;

    let listener = bind_for_owner(path).with_context(context)?;
    let file = SocketFile::of(path).with_context(context)?;
    Ok((listener, file))
}

/// This process's socket file, which it removes only if it is still the same file.
///
/// Holds all that watching and removing it take: the process may lose access to the path meanwhile.
#[derive(Clone, Debug)]
pub struct SocketFile {
    file: Arc<OwnedFd>,
    directory: Arc<OwnedFd>,
    name: OsString,
    /// `None` if the file cannot be watched.
    changes: Option<Arc<Inotify>>,
}

impl SocketFile {
    /// Refers to the file of a socket that listens there.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        let reference = |path: &Path, flag| {
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | flag;
            open(path, flags, Mode::empty()).map(Arc::new)
        };
        let changes = watch(path);
        if let Err(error) = &changes {
            warn!("cannot watch the UAPI socket for removal: {error}");
        }
        Ok(Self {
            file: reference(path, OFlag::O_NOFOLLOW)?,
            directory: reference(parent, OFlag::O_DIRECTORY)?,
            name: name.to_owned(),
            changes: changes.ok().map(Arc::new),
        })
    }

    /// Returns whether the file and its directory belong to the user of this process.
    pub(crate) fn is_ours(&self) -> bool {
        let us = geteuid().as_raw();
        let directory = fstat(&self.directory).is_ok_and(|directory| directory.st_uid == us);
        directory && self.metadata().is_ok_and(|file| file.st_uid == us)
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Descriptors that [`SocketFile::remove`] uses.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.file.as_raw_fd(), self.directory.as_raw_fd()]
    }

    /// Removes the file, unless another daemon has replaced it.
    pub fn remove(&self) {
        if self.is_there() {
            // Nothing can be done about a file that cannot be removed.
            let _ = unlinkat(&*self.directory, &*self.name, UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Waits until someone removes the file, which is how a userspace WireGuard is stopped; forever if it
    /// cannot be watched.
    pub async fn removed(&self) -> io::Result<()> {
        let Some(changes) = &self.changes else {
            return std::future::pending().await;
        };
        // SAFETY: `changes` owns the descriptor and outlives `events`, which borrows it.
        let events = unsafe { AsyncFd::register(changes.as_fd()) }?;
        // Its directory may be out of reach meanwhile.
        while fstat(&self.file)?.st_nlink > 0 {
            let mut ready = events.readable().await?;
            // What happened does not matter, only whether the file is still there.
            let _ = changes.read_events();
            ready.clear_ready();
        }
        Ok(())
    }

    fn is_there(&self) -> bool {
        let identity = |file: FileStat| (file.st_dev, file.st_ino);
        let ours = fstat(&self.file).map(identity);
        ours.is_ok() && ours == self.metadata().map(identity)
    }

    fn metadata(&self) -> nix::Result<FileStat> {
        fstatat(&*self.directory, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }
}

fn watch(path: &Path) -> io::Result<Inotify> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    // The listener keeps the inode alive, so a removal shows as a change of its link count.
    inotify.add_watch(path, AddWatchFlags::IN_ATTRIB)?;
    Ok(inotify)
}

/// Binds with a umask that gives others no permission. The umask is process-wide, hence the lock.
fn bind_for_owner(path: &Path) -> io::Result<UnixListener> {
    static MASK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MASK.lock();
    let previous = umask(Mode::from_bits_truncate(0o077));
    let listener = UnixListener::bind(path);
    umask(previous);
    listener
}

/// Removes a stale socket file; fails if the path is something else.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::other("the file exists and is not a socket")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    #[test]
    fn a_stale_socket_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/wg0.sock");
        let (listener, _file) = bind(&path).unwrap();
        drop(listener);
        assert!(
            path.exists(),
            "dropping the listener does not remove the file"
        );
        bind(&path).unwrap();
        UnixStream::connect(&path).unwrap_err();
        assert!(!listens(&path));
    }

    #[test]
    fn a_socket_that_answers_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let (_listener, _file) = bind(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(error.to_string().contains("already in use"), "{error}");
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_daemon_that_accepts_nothing_any_more_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let (listener, _file) = bind(&path).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        // It takes the only place, and leaves it to nobody although it is closed.
        UnixStream::connect(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(error.to_string().contains("already in use"), "{error}");
        assert!(listens(&path));
        let error = connect_within(&path, ENDING_PAUSE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn bind_waits_for_a_dying_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let dying = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                // Dropping the listener ends connections that it has not accepted.
                thread::sleep(ENDING_PAUSE);
                drop(dying);
            });
            bind(&path).unwrap();
        });
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        fs::write(&path, "mine").unwrap();
        bind(&path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn only_the_owner_may_connect() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let (_listener, _file) = bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }

    #[test]
    fn a_successors_file_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let (_listener, ours) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (_successor, theirs) = bind(&path).unwrap();
        ours.remove();
        assert!(path.exists());
        theirs.remove();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_removal_of_the_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let (_listener, file) = bind(&path).unwrap();
        let remove = async { fs::remove_file(&path).unwrap() };
        let (noticed, ()) = tokio::join!(file.removed(), remove);
        noticed.unwrap();
    }
}
