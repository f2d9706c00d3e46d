//! Sparse traffic: lone packets on an idle tunnel, which the event loop reads and writes itself.
//!
//! Under load the thread `tun-reader` reads the device and `tun-writer` writes it. For a lone packet that
//! costs two wake-ups one after the other, a thread's and the event loop's: twice the latency. So after a
//! pause in the traffic `tun-reader` lends the device to the event loop. The first burst in either
//! direction ends the loan, and nothing here runs while packets flow.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use crate::device::PacketIo;

/// Most packets in one tick, in either direction, while traffic is sparse; also the most ticks without a
/// wait.
pub(crate) const FEW: usize = 4;
/// Time for which the device must have been empty before the next few packets count as sparse.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);

/// Records which thread reads the device; shared by `tun-reader` and the event loop.
#[derive(Debug, Default)]
pub(crate) struct Loan {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// `tun-reader` reads.
    #[default]
    None,
    /// The event loop reads, and `tun-reader` sleeps.
    Lent,
    /// The reader has stopped.
    Stopped,
}

impl Loan {
    /// Lends the device to the event loop; then call [`Loan::wait_for_return`].
    pub(crate) fn lend(&self) {
        let mut state = self.lock();
        if *state == State::None {
            *state = State::Lent;
        }
    }

    /// Waits until the event loop gives the device back; returns false if the reader has stopped.
    pub(crate) fn wait_for_return(&self) -> bool {
        let is_lent = |state: &mut State| *state == State::Lent;
        let state = self.changed.wait_while(self.lock(), is_lent);
        *state.unwrap_or_else(PoisonError::into_inner) == State::None
    }

    /// Ends every [`Loan::wait_for_return`], now and later.
    pub(crate) fn stop(&self) {
        *self.lock() = State::Stopped;
        self.changed.notify_all();
    }

    fn give_back(&self) {
        let mut state = self.lock();
        if *state == State::Lent {
            *state = State::None;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event loop's side of a [`Loan`].
#[derive(Debug)]
pub(crate) struct Sparse {
    loan: Arc<Loan>,
    io: Arc<dyn PacketIo>,
    /// Set while the device is lent.
    readiness: Option<AsyncFd<Readable>>,
}

#[derive(Debug)]
struct Readable(Arc<dyn PacketIo>);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.readable().as_fd().as_raw_fd()
    }
}

/// Includes errors, as a device that is being deleted reports only an error.
const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

impl Sparse {
    pub(crate) fn new(loan: Arc<Loan>, io: Arc<dyn PacketIo>) -> Self {
        Self {
            loan,
            io,
            readiness: None,
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.readiness.is_some()
    }

    /// Takes the device that `tun-reader` has lent; gives it back at once if tokio cannot watch it.
    pub(crate) fn begin(&mut self) {
        let readable = Readable(Arc::clone(&self.io));
        let readiness = Handle::try_current().ok().and_then(|_| {
            // SAFETY: `Readable` keeps the device and its descriptor open until it is dropped, and always
            // returns the same one.
            unsafe { AsyncFd::register_with_interest(readable, READABLE) }.ok()
        });
        self.readiness = readiness;
        if !self.is_on() {
            self.loan.give_back();
        }
    }

    /// Gives the device back to `tun-reader`.
    pub(crate) fn end(&mut self) {
        if self.readiness.take().is_some() {
            self.loan.give_back();
        }
    }

    /// Waits until the lent device may have a packet; forever while it is not lent. Cancel-safe.
    pub(crate) async fn readable(&mut self) {
        let Some(readiness) = &self.readiness else {
            return std::future::pending().await;
        };
        let ready = readiness.ready(READABLE).await;
        // Leave an error to `tun-reader`: its next read reports it.
        if !ready.is_ok_and(|guard| !guard.ready().is_error()) {
            self.end();
        }
    }

    /// Runs `read` if the device is lent and may have a packet.
    pub(crate) fn read_with(&mut self, read: impl FnOnce() -> Read) {
        let Some(readiness) = &self.readiness else {
            return;
        };
        let mut outcome = Read::Empty;
        // `try_io` takes only one interest.
        let _ = readiness.try_io(Interest::READABLE, |_| {
            outcome = read();
            match outcome {
                Read::Empty => Err(std::io::ErrorKind::WouldBlock.into()),
                Read::Burst => Ok(()),
            }
        });
        if outcome == Read::Burst {
            self.end();
        }
    }
}

/// The outcome of a read of the lent device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The device is empty.
    Empty,
    /// There may be more than [`FEW`] packets, or an error, or no buffer: `tun-reader` takes over.
    Burst,
}
