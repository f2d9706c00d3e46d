//! A descriptor watched by tokio, for an event loop that rarely lets tokio run its reactor.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    time::Duration,
};

use tokio::io::{Interest, unix::AsyncFd};

/// Pause of a busy loop after a fruitless operation, doubled each time: a system call costs a fraction of it.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// The longest of these pauses, and so the longest time by which a busy loop sees a datagram late.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// A registered descriptor.
///
/// tokio learns of readiness only when its reactor runs, and a loop that is never idle rarely lets it.
/// So [`Watched::run`] does not depend on it, and [`Watched::is_worth_trying`] says when a busy loop
/// should try.
#[derive(Debug)]
pub(super) struct Watched<T: AsFd> {
    fd: AsyncFd<Fd<T>>,
    interest: Interest,
    last_try: Duration,
    /// Zero after an operation that succeeded.
    pause: Duration,
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
        // SAFETY: `Fd` wraps only types that own or co-own their descriptor, keep it open until they are
        // dropped, and always return the same one.
        let fd = unsafe { AsyncFd::register_with_interest(Fd(fd), interest) }?;
        Ok(Self {
            fd,
            interest,
            last_try: Duration::ZERO,
            pause: Duration::ZERO,
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

    /// Returns whether an operation may succeed: tokio has seen the descriptor become ready, or the loop is too
    /// busy to let it look and the pause after the last fruitless operation is over.
    pub(super) fn is_worth_trying(&mut self, is_busy: bool, now: Duration) -> bool {
        let is_time = is_busy && now.saturating_sub(self.last_try) >= self.pause;
        let is_worth = is_time || self.fd.try_io(self.interest, |_| Ok(())).is_ok();
        if is_worth {
            self.last_try = now;
        }
        is_worth
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
            Ok(_) => self.pause = Duration::ZERO,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.pause = (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            }
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
    async fn a_busy_loop_tries_every_millisecond_if_it_is_always_in_vain() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let mut watched = Watched::new(socket, Interest::READABLE).unwrap();
        let receive = |socket: &UdpSocket| socket.recv(&mut [0; 8]);
        let mut now = Duration::from_secs(1);
        let mut tries = 0;
        for _ in 0..100_000 {
            assert!(!watched.is_worth_trying(false, now));
            if watched.is_worth_trying(true, now) {
                tries += 1;
                assert!(watched.run(receive).is_err());
            }
            now += Duration::from_micros(1);
        }
        assert!((100..110).contains(&tries), "{tries} tries in 100 ms");
        watched.inner().send_to(b"x", address).unwrap();
        watched.ready().await;
        assert!(watched.is_worth_trying(false, now));
        assert_eq!(watched.run(receive).unwrap(), 1);
        assert!(watched.is_worth_trying(true, now));
    }
}
