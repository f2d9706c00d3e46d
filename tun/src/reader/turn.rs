//! Whose turn it is to read the device.
//!
//! Under load the thread reads, beside the event loop. A packet that comes alone would then wake two
//! threads, one after the other: so where packets are few and far between, the thread hands the turn
//! over, in the batch itself, and sleeps until the event loop gives it back.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use super::{Filled, Source};
use crate::{device::PacketIo, outbound::Outbound, pool::Lease, pool::Pool};

/// Packets that the event loop reads in one go. Where more are waiting, the turn is the thread's again.
pub(super) const FEW: usize = 4;
/// A wait this long for a few packets makes the turn the event loop's.
pub(super) const FAR_BETWEEN: Duration = Duration::from_millis(2);

/// Who reads; shared by the thread and the event loop.
#[derive(Debug, Default)]
pub(super) struct Turn {
    holder: Mutex<Holder>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    #[default]
    Thread,
    EventLoop,
    /// Nobody: the thread is to end.
    Stopped,
}

impl Turn {
    /// The thread has read the last batch of its turn.
    pub(super) fn hand_over(&self) {
        let mut holder = self.lock();
        if *holder == Holder::Thread {
            *holder = Holder::EventLoop;
        }
    }

    /// Waits until it is the thread's turn. False: stopped.
    pub(super) fn wait(&self) -> bool {
        let is_waiting = |holder: &mut Holder| *holder == Holder::EventLoop;
        let holder = self.changed.wait_while(self.lock(), is_waiting);
        *holder.unwrap_or_else(PoisonError::into_inner) == Holder::Thread
    }

    /// Ends every [`Turn::wait`], now and later.
    pub(super) fn stop(&self) {
        *self.lock() = Holder::Stopped;
        self.changed.notify_all();
    }

    fn give_back(&self) {
        let mut holder = self.lock();
        if *holder == Holder::EventLoop {
            *holder = Holder::Thread;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event loop's own reading.
#[derive(Debug)]
pub(super) struct Direct {
    source: Source,
    turn: Arc<Turn>,
    pool: Arc<Pool<Outbound>>,
    /// Set while it is the event loop's turn.
    readiness: Option<AsyncFd<Readable>>,
}

#[derive(Debug)]
struct Readable(Arc<dyn PacketIo>);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.readable().as_fd().as_raw_fd()
    }
}

/// A device that is being deleted reports an error without a packet.
const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

impl Direct {
    pub(super) fn new(source: Source, turn: Arc<Turn>, pool: Arc<Pool<Outbound>>) -> Self {
        Self {
            source,
            turn,
            pool,
            readiness: None,
        }
    }

    /// The thread has handed the turn over. Without a runtime it gets it back at once.
    pub(super) fn begin(&mut self) {
        if Handle::try_current().is_err() {
            return self.end();
        }
        let readable = Readable(Arc::clone(&self.source.io));
        // SAFETY: `Readable` keeps the device, and with it the descriptor, open until it is dropped,
        // and always gives the same one.
        match unsafe { AsyncFd::register_with_interest(readable, READABLE) } {
            Ok(readiness) => self.readiness = Some(readiness),
            Err(error) => {
                tracing::debug!(%error, "The TUN is read by its thread alone");
                self.end();
            }
        }
    }

    /// Waits until [`Direct::read`] may find something; for ever while it is the thread's turn.
    /// Cancel-safe.
    pub(super) async fn readable(&mut self) {
        let ready = match &self.readiness {
            Some(readiness) => readiness.ready(READABLE).await,
            None => std::future::pending().await,
        };
        // The thread can tell what the matter is, and waits where there is nothing to tell.
        if !ready.is_ok_and(|guard| !guard.ready().is_error()) {
            self.end();
        }
    }

    /// Reads the few packets that are waiting, if it is the event loop's turn.
    pub(super) fn read(&mut self) -> Option<Lease<Outbound>> {
        let readiness = self.readiness.as_ref()?;
        let mut read = None;
        let mut is_over = false;
        // Calls the closure only where the device was readable when the event loop last looked. That
        // works for one interest at a time: tokio takes two for none here.
        let _ = readiness.try_io(Interest::READABLE, |_| {
            let Some(mut batch) = self.pool.take() else {
                is_over = true;
                return Ok(());
            };
            batch.clear();
            let filled = self.source.fill(&mut batch, FEW);
            read = Some(batch);
            match filled {
                Ok(Filled::Drained) => Err(io::ErrorKind::WouldBlock.into()),
                // More is waiting; or the thread will meet the same error.
                Ok(Filled::Full) | Err(_) => {
                    is_over = true;
                    Ok(())
                }
            }
        });
        if is_over {
            self.end();
        }
        read.filter(|batch| !batch.is_empty())
    }

    #[cfg(test)]
    pub(super) fn has_turn(&self) -> bool {
        self.readiness.is_some()
    }

    fn end(&mut self) {
        self.readiness = None;
        self.turn.give_back();
    }
}
