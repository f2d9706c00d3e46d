//! The seam between the threads and a device.

use std::{
    fmt::Debug,
    io::{Error, Result},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

/// Reads and writes of a device that never block, and waits that a [`Stop`] ends.
pub(crate) trait PacketIo: Debug + Send + Sync {
    /// Reads one packet, with its virtio header where the device has them.
    fn read(&self, buffer: &mut [u8]) -> Result<usize>;
    /// Writes one packet, with its virtio header where the device has them.
    fn write(&self, bytes: &[u8]) -> Result<usize>;
    /// A descriptor that is readable when a packet may be read.
    fn readable(&self) -> BorrowedFd<'_>;
    /// Waits until a read may succeed. False: stopped.
    fn wait_readable(&self, stop: &Stop) -> Result<bool> {
        stop.wait_or(self.readable(), PollFlags::POLLIN)
    }
    /// Waits until a write may succeed. False: stopped.
    fn wait_writable(&self, stop: &Stop) -> Result<bool>;
    fn name(&self) -> Result<String>;
    fn mtu(&self) -> Result<u16>;
    fn set_mtu(&self, mtu: u16) -> Result<()>;
    fn network_namespace(&self) -> Result<OwnedFd>;
}

/// Ends the waits of a thread, from another.
#[derive(Debug)]
pub(crate) struct Stop(EventFd);

/// How long to wait before looking again at a device that says neither yes nor no.
const PAUSE: Duration = Duration::from_millis(10);

impl Stop {
    pub(crate) fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(EventFd::from_flags(flags)?))
    }

    /// Cannot fail: the counter of an eventfd that nobody reads is far from full.
    pub(crate) fn signal(&self) {
        let _ = self.0.write(1);
    }

    /// Waits for `events` on `fd`. False: stopped.
    ///
    /// An error condition alone also ends the wait, after a pause: the next read or write tells what
    /// it is, and where it tells nothing, as while an interface is being deleted, nobody spins.
    pub(crate) fn wait_or(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<bool> {
        let mut fds = [
            PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
            PollFd::new(fd, events),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => return Ok(true),
            Err(errno) => return Err(Error::from(errno)),
            Ok(_) => {}
        }
        let stopped = fds[0].any().unwrap_or(true);
        let ready = fds[1]
            .revents()
            .is_some_and(|revents| revents.intersects(events));
        if stopped || ready {
            return Ok(!stopped);
        }
        self.pause()
    }

    /// Waits a few milliseconds. False: stopped.
    pub(crate) fn pause(&self) -> Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PAUSE.as_millis() as u8) {
            Ok(0) | Err(Errno::EINTR) => Ok(true),
            Ok(_) => Ok(false),
            Err(errno) => Err(Error::from(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_descriptor_with_nothing_but_an_error_is_not_asked_again_at_once() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        let stop = Stop::new().unwrap();
        let began = Instant::now();
        assert!(stop.wait_or(writer.as_fd(), PollFlags::POLLIN).unwrap());
        assert!(began.elapsed() >= PAUSE);
        stop.signal();
        assert!(!stop.wait_or(writer.as_fd(), PollFlags::POLLIN).unwrap());
    }

    #[test]
    fn readiness_ends_a_wait_and_a_stop_wins_over_it() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        nix::unistd::write(&writer, b"x").unwrap();
        let stop = Stop::new().unwrap();
        assert!(stop.wait_or(reader.as_fd(), PollFlags::POLLIN).unwrap());
        stop.signal();
        assert!(!stop.wait_or(reader.as_fd(), PollFlags::POLLIN).unwrap());
    }
}
