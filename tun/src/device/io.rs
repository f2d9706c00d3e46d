//! The seam between the two threads and a device, real or in memory.

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

/// A device: reads and writes that never block, and waits that a [`Stop`] ends.
pub(crate) trait PacketIo: Debug + Send + Sync {
    /// Reads one packet, with its virtio header where the device has them.
    fn read(&self, buffer: &mut [u8]) -> Result<usize>;
    /// Writes one packet, with its virtio header where the device has them.
    fn write(&self, bytes: &[u8]) -> Result<usize>;
    /// A descriptor that polls readable when a packet can be read.
    fn readable(&self) -> BorrowedFd<'_>;
    /// Waits until a read may succeed; returns false if stopped.
    fn wait_readable(&self, stop: &Stop) -> Result<bool> {
        stop.wait_or(self.readable(), PollFlags::POLLIN)
    }
    /// Waits until a write may succeed; returns false if stopped.
    fn wait_writable(&self, stop: &Stop) -> Result<bool>;
    fn name(&self) -> Result<String>;
    fn mtu(&self) -> Result<u16>;
    fn set_mtu(&self, mtu: u16) -> Result<()>;
    fn network_namespace(&self) -> Result<OwnedFd>;
}

/// Ends the waits of one thread from another, for good.
#[derive(Debug)]
pub(crate) struct Stop(EventFd);

/// Pause before polling again a descriptor that reports only an error.
const PAUSE: Duration = Duration::from_millis(10);

impl Stop {
    pub(crate) fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(EventFd::from_flags(flags)?))
    }

    /// Ends every wait, now and later. Cannot fail: nobody reads the eventfd, and its counter is far from
    /// full.
    pub(crate) fn signal(&self) {
        let _ = self.0.write(1);
    }

    /// Waits for `events` on `fd`; returns false if stopped.
    ///
    /// An error condition alone also ends the wait, and the next read or write reports it. It ends the
    /// wait only after a pause, so that nobody spins if there is nothing to report, as while an interface
    /// is being deleted.
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

    /// Waits for 10 ms; returns false if stopped.
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
