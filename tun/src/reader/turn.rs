//! Whose turn it is to read the device.
//!
//! Under load the thread reads, beside the event loop. A packet that comes alone would then wake two
//! threads, one after the other: so where packets are few and far between, or come a few at a time
//! again and again, as acknowledgements do, the thread hands the turn over, in the batch itself, and
//! sleeps until the event loop gives it back. It does so in any case while the event loop reads
//! alone, having time for it: two threads that take turns cost more than one.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use super::{Filled, Source};
use crate::{device::PacketIo, outbound::Outbound, pool::Lease, pool::Pool};

/// Packets that the event loop reads in one go unless it reads alone. Where more are waiting, the
/// turn is the thread's again.
pub(super) const FEW: usize = 4;
/// A wait this long for a few packets makes the turn the event loop's.
pub(super) const FAR_BETWEEN: Duration = Duration::from_millis(2);
/// So many waits in a row for a few packets, however short, do it, too.
pub(super) const IN_A_ROW: u32 = 32;
/// Calls that two ticks after a wait make of [`Direct::read`].
const CALLS_OF_TWO_TICKS: u32 = 4;
/// Successive reads in vain after which a busy event loop reads only what is known to be readable.
const READS_IN_VAIN: u32 = 64;

/// Who reads; shared by the thread and the event loop.
#[derive(Debug, Default)]
pub(super) struct Turn {
    holder: Mutex<Holder>,
    changed: Condvar,
    /// Whether the event loop reads alone. It only says who is to read next, and orders nothing.
    is_alone: AtomicBool,
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

    pub(super) fn set_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
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
    /// Packets in a batch.
    limit: usize,
    /// Set while it is the event loop's turn.
    readiness: Option<AsyncFd<Readable>>,
    /// Calls of [`Direct::read`] since the event loop last waited.
    calls_since_wait: u32,
    reads_in_vain: u32,
    /// The last call has emptied the device: the next one, in the same tick, would find nothing.
    is_drained: bool,
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
    pub(super) fn new(
        source: Source,
        turn: Arc<Turn>,
        pool: Arc<Pool<Outbound>>,
        limit: usize,
    ) -> Self {
        Self {
            source,
            turn,
            pool,
            limit,
            readiness: None,
            calls_since_wait: 0,
            reads_in_vain: 0,
            is_drained: false,
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
            Ok(readiness) => {
                self.readiness = Some(readiness);
                self.reads_in_vain = 0;
            }
            Err(error) => {
                tracing::debug!(%error, "The TUN is read by its thread alone");
                self.end();
            }
        }
    }

    /// Waits until [`Direct::read`] may find something; for ever while it is the thread's turn.
    /// Cancel-safe.
    pub(super) async fn readable(&mut self) {
        self.calls_since_wait = 0;
        let ready = match &self.readiness {
            Some(readiness) => readiness.ready(READABLE).await,
            None => std::future::pending().await,
        };
        // The thread can tell what the matter is, and waits where there is nothing to tell.
        if !ready.is_ok_and(|guard| !guard.ready().is_error()) {
            self.end();
        }
    }

    /// Reads packets that are waiting, if it is the event loop's turn: a few, or a batch of them where
    /// it reads alone.
    ///
    /// After a wait the device is read where it is known to be readable. A loop that is never idle
    /// rarely asks for that: then it tries, as long as that brings something now and then.
    pub(super) fn read(&mut self) -> Option<Lease<Outbound>> {
        let readiness = self.readiness.as_ref()?;
        self.calls_since_wait = self.calls_since_wait.saturating_add(1);
        if mem::take(&mut self.is_drained) {
            return None;
        }
        let is_asking_rarely = self.calls_since_wait > CALLS_OF_TWO_TICKS;
        let is_in_use = self.reads_in_vain < READS_IN_VAIN;
        let is_alone = self.turn.is_alone();
        let limit = if is_alone { self.limit } else { FEW };
        let mut read = None;
        let mut is_drained = false;
        let mut is_over = false;
        let mut fill = || {
            let Some(mut batch) = self.pool.take() else {
                is_over = true;
                return Ok(());
            };
            batch.clear();
            let filled = self.source.fill(&mut batch, limit);
            read = Some(batch);
            match filled {
                Ok(Filled::Drained) => {
                    is_drained = true;
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(Filled::Full) => is_over = !is_alone,
                // The thread will meet the same error.
                Err(_) => is_over = true,
            }
            Ok(())
        };
        let _ = if is_asking_rarely && is_in_use {
            fill()
        } else {
            // Works for one interest at a time: tokio takes two for none here.
            readiness.try_io(Interest::READABLE, |_| fill())
        };
        if is_over {
            self.end();
        }
        let batch = read?;
        self.is_drained = is_drained && !batch.is_empty();
        self.reads_in_vain = if batch.is_empty() {
            self.reads_in_vain + 1
        } else {
            0
        };
        (!batch.is_empty()).then_some(batch)
    }

    #[cfg(test)]
    pub(super) fn has_turn(&self) -> bool {
        self.readiness.is_some()
    }

    fn end(&mut self) {
        self.readiness = None;
        self.is_drained = false;
        self.turn.give_back();
    }
}
