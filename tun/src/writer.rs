//! The thread that writes the TUN, and the event loop's end of it.

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

/// Starts the thread `tun-writer`. Only what the device has offload for is coalesced.
///
/// # Errors
/// When the thread or its eventfd cannot be made.
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
    let thread = std::thread::Builder::new()
        .name("tun-writer".to_owned())
        .spawn(move || {
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

/// The sending end of the writer thread; dropping it writes what was submitted and ends the thread.
#[derive(Debug)]
pub struct Writer {
    queue: Arc<HandOver<Lease<InboundBuffer>>>,
    /// The thread may sleep beside what is in the queue.
    is_enqueued: bool,
    pool: Arc<Pool<InboundBuffer>>,
    /// Writes on the event loop's thread while traffic is sparse.
    direct: BatchWriter,
    coalesce: Coalesce,
    in_flight: Arc<AtomicUsize>,
    is_refused: Arc<AtomicBool>,
    /// Until when nothing is coalesced.
    rests_until: Option<Duration>,
    counters: WriterCounters,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// How long nothing is coalesced after the kernel has refused a super-packet. One that refuses them
/// always costs a call in so much time.
const RETRY_AFTER_REFUSAL: Duration = Duration::from_secs(600);

impl Writer {
    /// An empty batch. `None`: all are on their way to the TUN; [`Writer::room`] tells when one is not.
    ///
    /// `now` is any clock that goes forward: after a refusal coalescing rests for ten minutes of it.
    pub fn take(&mut self, now: Duration) -> Option<InboundBatch> {
        let mut batch = self.pool.take()?;
        self.counters.absorb(&mut batch.counters);
        self.end_of_rest(now);
        batch.clear(self.coalescing());
        Some(InboundBatch(batch))
    }

    /// Sends the batch to the TUN; never blocks.
    pub fn submit(&mut self, batch: InboundBatch) {
        self.enqueue(batch);
        self.wake();
    }

    /// Sends the batch to the TUN when [`Writer::wake`] is called, or before; never blocks.
    ///
    /// Waking the thread costs as much as writing some packets: once for several batches is enough.
    pub fn enqueue(&mut self, batch: InboundBatch) {
        if batch.is_empty() {
            return;
        }
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.is_enqueued = true;
        // INVARIANT: the queue has room for every batch of the pool.
        let _ = self.queue.put(batch.0);
    }

    /// Writes the batch to the TUN on the caller's thread, as long as the kernel has room and there
    /// is nothing that the batch would overtake; else as [`Writer::submit`]. For sparse traffic.
    pub fn write(&mut self, mut batch: InboundBatch) {
        if self.is_idle() && self.direct.write(&mut batch.0).is_ok() {
            return;
        }
        self.submit(batch);
    }

    /// Wakes the thread if something was enqueued since.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_enqueued) {
            self.queue.wake();
        }
    }

    /// Whether everything submitted has been written.
    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
    }

    /// Completes once a batch came back after [`Writer::take`] had none. Cancel-safe.
    pub async fn room(&self) {
        self.pool.room().await;
    }

    /// The protocols that are coalesced: none for a while after the kernel has refused a super-packet.
    pub fn coalescing(&self) -> Coalesce {
        if self.is_refused.load(Ordering::Relaxed) {
            Coalesce::default()
        } else {
            self.coalesce
        }
    }

    /// Lets the writer try super-packets again when they have rested long enough since the first
    /// batch after the refusal.
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

    /// Totals, without the batches that are on their way.
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
            // It fails only when the thread is to end and the kernel takes no more.
            let _ = self.to_device.write(&mut batch);
            // Returned first: once the writer looks idle, the batch and its counters are back.
            drop(batch);
            self.in_flight.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
