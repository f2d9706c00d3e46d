//! The thread that writes the TUN, and the event loop's handle to it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    Coalesce, Device, INBOUND_BATCHES,
    counters::WriterCounters,
    device::Stop,
    hand_over::HandOver,
    inbound::{InboundBatch, InboundBuffer},
    pool::{Lease, Pool},
    schedule::preempt_nobody,
    write::BatchWriter,
};

/// Starts the thread `tun-writer`. Coalesces only protocols for which the device has offload.
///
/// # Errors
/// If the thread or its eventfd cannot be created.
pub fn spawn_writer(device: &Device, coalesce: Coalesce) -> io::Result<Writer> {
    let offload = device.offload();
    let coalesce = Coalesce {
        tcp: coalesce.tcp && offload.tcp,
        udp: coalesce.udp && offload.udp,
    };
    let stop = Arc::new(Stop::new()?);
    let is_refused = Arc::new(AtomicBool::new(false));
    let in_flight = Arc::new(AtomicUsize::new(0));
    let batch_writer = |stop| {
        BatchWriter::new(
            Arc::clone(&device.io),
            offload.vnet_hdr,
            Arc::clone(&is_refused),
            stop,
        )
    };
    let queue = HandOver::new(INBOUND_BATCHES);
    let writing = Writing {
        queue: Arc::clone(&queue),
        to_device: batch_writer(Some(Arc::clone(&stop))),
        in_flight: Arc::clone(&in_flight),
    };
    let span = tracing::Span::current();
    let thread = std::thread::Builder::new()
        .name("tun-writer".to_owned())
        .spawn(move || {
            let _interface = span.entered();
            preempt_nobody();
            writing.run()
        })?;
    Ok(Writer {
        queue,
        is_enqueued: false,
        pool: Pool::new(INBOUND_BATCHES, InboundBuffer::new),
        direct: batch_writer(None),
        coalesce,
        in_flight,
        is_refused,
        rests_until: None,
        counters: WriterCounters::default(),
        stop,
        thread: Some(thread),
    })
}

/// The sending end of the writer thread. Dropping it ends the thread, once the thread has written what
/// was submitted or the kernel takes no more. Only then are packets lost without being counted: nothing is
/// left that could read a counter.
#[derive(Debug)]
pub struct Writer {
    queue: Arc<HandOver<Lease<InboundBuffer>>>,
    /// Whether batches were enqueued since the last [`Writer::wake`].
    is_enqueued: bool,
    pool: Arc<Pool<InboundBuffer>>,
    /// Writes on the event loop's thread while traffic is sparse.
    direct: BatchWriter,
    coalesce: Coalesce,
    in_flight: Arc<AtomicUsize>,
    is_refused: Arc<AtomicBool>,
    /// When coalescing resumes after a refusal.
    rests_until: Option<Duration>,
    counters: WriterCounters,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// How long coalescing is off after the kernel has refused a super-packet. A kernel that refuses all of
/// them costs one failed call per such time.
const RETRY_AFTER_REFUSAL: Duration = Duration::from_secs(600);

impl Writer {
    /// Takes an empty batch; `None` if all are in use, and then [`Writer::room`] completes when one is back.
    ///
    /// `now` may be any monotonic clock: it times the ten minutes without coalescing after a refusal.
    pub fn take(&mut self, now: Duration) -> Option<InboundBatch> {
        let mut batch = self.pool.take()?;
        self.counters.absorb(&mut batch.counters);
        self.end_of_rest(now);
        batch.clear(self.coalescing());
        Some(InboundBatch(batch))
    }

    /// Hands the batch to the thread; never blocks. An empty one is dropped.
    pub fn submit(&mut self, batch: InboundBatch) {
        self.enqueue(batch);
        self.wake();
    }

    /// Hands the batch to the thread without waking it; never blocks. A sleeping thread writes it only after
    /// [`Writer::wake`].
    ///
    /// A wake-up costs as much as writing several packets, so make one for several batches.
    pub fn enqueue(&mut self, batch: InboundBatch) {
        if batch.is_empty() {
            return;
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.is_enqueued = true;
        // INVARIANT: the queue has room for every batch of the pool.
        let _ = self.queue.put(batch.0);
    }

    /// Writes the batch to the TUN on the caller's thread, for sparse traffic. Falls back to
    /// [`Writer::submit`] if the batch would overtake another, or as soon as the kernel has no room.
    pub fn write(&mut self, mut batch: InboundBatch) {
        if self.is_idle() && self.direct.write(&mut batch.0).is_ok() {
            return;
        }
        self.submit(batch);
    }

    /// Wakes the thread if a batch was enqueued since the last call.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_enqueued) {
            self.queue.wake();
        }
    }

    /// Returns whether every submitted batch has been written or dropped.
    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
    }

    /// Completes once a batch comes back after [`Writer::take`] found none. Cancel-safe.
    pub async fn room(&self) {
        self.pool.room().await;
    }

    /// The protocols that are coalesced; none for ten minutes after the kernel has refused a super-packet.
    pub fn coalescing(&self) -> Coalesce {
        if self.is_refused.load(Ordering::Relaxed) {
            Coalesce::default()
        } else {
            self.coalesce
        }
    }

    /// Turns coalescing on again ten minutes after the first call that saw the refusal.
    fn end_of_rest(&mut self, now: Duration) {
        if !self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let until = *self.rests_until.get_or_insert(now + RETRY_AFTER_REFUSAL);
        if now >= until {
            self.rests_until = None;
            self.is_refused.store(false, Ordering::Relaxed);
        }
    }

    /// The counts so far, without those of batches that are still in use.
    pub fn counters(&mut self) -> &WriterCounters {
        let Self { pool, counters, .. } = self;
        pool.for_each_free(|batch| counters.absorb(&mut batch.counters));
        counters
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct Writing {
    queue: Arc<HandOver<Lease<InboundBuffer>>>,
    to_device: BatchWriter,
    in_flight: Arc<AtomicUsize>,
}

impl Writing {
    fn run(mut self) {
        while let Some(mut batch) = self.queue.take_blocking() {
            // Fails only after `stop`, which nothing but the drop of the writer signals, and the counters
            // went with the writer.
            let _ = self.to_device.write(&mut batch);
            // Return the batch first: once the writer is idle, the batch and its counters must be back.
            drop(batch);
            self.in_flight.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
