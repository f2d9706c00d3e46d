//! Watches a file by its directory, so that a rename over it is noticed.

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd as _, AsRawFd, RawFd},
    path::Path,
};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::{Interest, unix::AsyncFd};

/// A watched file.
pub(super) struct Directory {
    events: AsyncFd<Queue>,
    name: OsString,
}

struct Queue(Inotify);

impl Directory {
    pub(super) fn watch(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let replaced = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE;
        let removed = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM;
        let all = replaced | removed | AddWatchFlags::IN_CLOSE_WRITE;
        inotify.add_watch(directory, all)?;
        // A mount point's writes are not its directory's.
        inotify.add_watch(path, AddWatchFlags::IN_CLOSE_WRITE).ok();
        // SAFETY: the queue owns its descriptor and never replaces it.
        let events = unsafe { AsyncFd::register(Queue(inotify)) }?;
        Ok(Self {
            events,
            name: path.file_name().unwrap_or_default().to_owned(),
        })
    }

    /// Waits until the file may have changed.
    pub(super) async fn changed(&mut self) {
        loop {
            let read = self
                .events
                .async_io(Interest::READABLE, |queue| Ok(queue.0.read_events()?));
            let Ok(events) = read.await else {
                return;
            };
            // Events of the file itself have no name.
            let is_ours = |name: &Option<OsString>| name.as_ref().is_none_or(|n| *n == self.name);
            if events.iter().any(|event| is_ours(&event.name)) {
                return;
            }
        }
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
