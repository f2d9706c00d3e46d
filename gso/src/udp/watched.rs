//! A descriptor watched by tokio, for an event loop that rarely lets tokio run its reactor.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

/// Fruitless operations in a row after which only readiness that tokio reports justifies another.
const IN_VAIN: u32 = 64;

/// A registered descriptor.
///
/// tokio learns of readiness only when its reactor runs, and a loop that is never idle rarely lets it.
/// So [`Watched::run`] does not depend on it, and [`Watched::is_worth_trying`] says when a busy loop
/// should try.
#[derive(Debug)]
pub(super) struct Watched<T: AsFd> {
    fd: AsyncFd<Fd<T>>,
    interest: Interest,
    in_vain: u32,
}

#[derive(Debug)]
struct Fd<T>(T);

impl<T: AsFd> AsRawFd for Fd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Watched<T> {
    /// Registers the descriptor with the current tokio runtime.
    pub(super) fn new(fd: T, interest: Interest) -> io::Result<Self> {
        // SAFETY: `Fd` wraps only types that own their descriptor, keep it open until they are dropped,
        // and always return the same one.
        let fd = unsafe { AsyncFd::register_with_interest(Fd(fd), interest) }?;
        Ok(Self {
            fd,
            interest,
            in_vain: 0,
        })
    }

    pub(super) fn inner(&self) -> &T {
        &self.fd.get_ref().0
    }

    /// Waits until tokio sees the descriptor become ready. Cancel-safe.
    pub(super) async fn ready(&self) {
        // The next operation reports any error.
        drop(self.fd.ready(self.interest).await);
    }

    /// Whether an operation may succeed: tokio has seen the descriptor become ready, or the loop is too
    /// busy to let it look and one of the last [`IN_VAIN`] operations succeeded.
    pub(super) fn is_worth_trying(&self, is_busy: bool) -> bool {
        let is_in_use = self.in_vain < IN_VAIN;
        (is_busy && is_in_use) || self.fd.try_io(self.interest, |_| Ok(())).is_ok()
    }

    /// Runs `operation`, even if tokio has not seen the descriptor become ready. `WouldBlock` clears
    /// tokio's remembered readiness.
    pub(super) fn run<R>(
        &mut self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut tried = false;
        let mut result = self.fd.try_io(self.interest, |fd| {
            tried = true;
            operation(&fd.0)
        });
        if !tried {
            result = operation(self.inner());
        }
        match &result {
            Ok(_) => self.in_vain = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.in_vain += 1,
            Err(_) => {}
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[tokio::test]
    async fn a_busy_loop_tries_until_it_has_long_been_in_vain() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let mut watched = Watched::new(socket, Interest::READABLE).unwrap();
        let receive = |socket: &UdpSocket| socket.recv(&mut [0; 8]);
        for _ in 0..IN_VAIN {
            assert!(watched.is_worth_trying(true) && !watched.is_worth_trying(false));
            assert!(watched.run(receive).is_err());
        }
        assert!(!watched.is_worth_trying(true));
        watched.inner().send_to(b"x", address).unwrap();
        watched.ready().await;
        assert!(watched.is_worth_trying(false));
        assert_eq!(watched.run(receive).unwrap(), 1);
        assert!(watched.is_worth_trying(true));
    }
}
