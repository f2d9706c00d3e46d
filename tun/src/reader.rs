//! The thread that reads the TUN: waits for a packet, reads all that are there, hands over the batch.

use std::{io, sync::Arc, thread::JoinHandle, time::Instant};

use tokio::sync::mpsc::{self, error::TryRecvError};

use convoy_packet::vnet::VNET_LEN;

use crate::{
    Device, MAX_BATCH_PACKETS, OUTBOUND_BATCHES,
    device::{PacketIo, Stop},
    outbound::{OutboundBatch, OutboundBuffer},
    pool::{Lease, Pool},
    schedule::preempt_nobody,
    sparse::{FEW, Loan, PAUSE, Read, Sparse},
};

/// Starts the thread `tun-reader`, which closes a batch at `batch` packets, clamped to
/// 1..=[`MAX_BATCH_PACKETS`].
///
/// # Errors
/// If the thread or its eventfd cannot be created.
pub fn spawn_reader(device: &Device, batch: usize) -> io::Result<Reader> {
    // The channel has room for every batch of the pool: the thread waits at the pool only.
    let (sender, receiver) = mpsc::channel(OUTBOUND_BATCHES);
    let stop = Arc::new(Stop::new()?);
    let pool = Pool::new(OUTBOUND_BATCHES, OutboundBuffer::new);
    let loan = Arc::new(Loan::default());
    let limit = batch.clamp(1, MAX_BATCH_PACKETS);
    let source = Source {
        io: Arc::clone(&device.io),
        framing: if device.offload().vnet_hdr {
            VNET_LEN
        } else {
            0
        },
        refused: 0,
    };
    let reading = Reading {
        source: source.clone(),
        stop: Arc::clone(&stop),
        loan: Arc::clone(&loan),
        pool: Arc::clone(&pool),
        sender,
        limit,
        is_drained: false,
    };
    let span = tracing::Span::current();
    let thread = std::thread::Builder::new()
        .name("tun-reader".to_owned())
        .spawn(move || {
            let _interface = span.entered();
            preempt_nobody();
            reading.run()
        })?;
    Ok(Reader {
        receiver,
        source,
        sparse: Sparse::new(Arc::clone(&loan), Arc::clone(&device.io)),
        loan,
        next: None,
        pool,
        stop,
        thread: Some(thread),
    })
}

/// The receiving end of the reader thread; dropping it ends the thread.
#[derive(Debug)]
pub struct Reader {
    receiver: mpsc::Receiver<Lease<OutboundBuffer>>,
    source: Source,
    sparse: Sparse,
    loan: Arc<Loan>,
    /// Received by [`Reader::ready`], for [`Reader::try_recv`].
    next: Option<OutboundBatch>,
    pool: Arc<Pool<OutboundBuffer>>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<ReaderExit>>,
}

/// Why no batch was received.
#[derive(Debug)]
pub enum TryRecv {
    /// None is ready.
    Empty,
    /// No more will come. Reported once with the reason, and later as [`ReaderExit::Stopped`].
    Closed(ReaderExit),
}

/// Why the reader thread ended.
#[derive(Debug)]
pub enum ReaderExit {
    /// [`Reader::stop`] was called.
    Stopped,
    /// The interface was deleted.
    InterfaceDeleted,
    /// A read failed with an unexpected error, or the thread panicked.
    Failed(io::Error),
}

impl Reader {
    /// Takes a batch from the channel; while traffic is sparse, reads the device itself. Never blocks.
    ///
    /// # Errors
    /// [`TryRecv`], the reason why there is none.
    pub fn try_recv(&mut self) -> Result<OutboundBatch, TryRecv> {
        if let Some(batch) = self.next.take() {
            return Ok(batch);
        }
        match self.receiver.try_recv() {
            Ok(batch) => Ok(self.accept(batch)),
            Err(TryRecvError::Empty) => self.read_sparse().ok_or(TryRecv::Empty),
            Err(TryRecvError::Disconnected) => Err(TryRecv::Closed(self.exit())),
        }
    }

    /// Waits until [`Reader::try_recv`] has a batch, or until no more will come. Cancel-safe. Call it in
    /// a tokio runtime with I/O enabled.
    pub async fn ready(&mut self) {
        while self.next.is_none() {
            tokio::select! {
                biased;
                batch = self.receiver.recv() => match batch {
                    Some(batch) => self.next = Some(self.accept(batch)),
                    None => return,
                },
                () = self.sparse.readable() => self.next = self.read_sparse(),
            }
        }
    }

    /// Returns whether traffic is sparse and stays so with `inbound` packets: the caller may then write them itself.
    #[inline]
    pub fn is_sparse(&self, inbound: usize) -> bool {
        self.sparse.is_on() && inbound <= FEW
    }

    /// Ends sparse traffic if packets flow. Call it with the datagrams that a tick has received, and with
    /// the number of ticks since the event loop last waited.
    #[inline]
    pub fn observe(&mut self, inbound: usize, busy_ticks: u32) {
        let is_burst = inbound > FEW;
        let is_busy = busy_ticks as usize > FEW;
        if is_burst || is_busy {
            self.sparse.end();
        }
    }

    /// Asks the thread to end. Batches already in the channel can still be received.
    pub fn stop(&self) {
        self.stop.signal();
        self.loan.stop();
        self.pool.close();
    }

    fn accept(&mut self, batch: Lease<OutboundBuffer>) -> OutboundBatch {
        if batch.lends_device {
            self.sparse.begin();
        }
        OutboundBatch(batch)
    }

    fn read_sparse(&mut self) -> Option<OutboundBatch> {
        let Self { source, pool, .. } = self;
        let mut read = None;
        self.sparse.read_with(|| {
            let Some(mut batch) = pool.take() else {
                return Read::Burst;
            };
            batch.clear();
            batch.is_sparse = true;
            let filled = source.fill(&mut batch, FEW);
            read = (!batch.is_empty()).then_some(OutboundBatch(batch));
            match filled {
                Ok(Filled::Drained) => Read::Empty,
                Ok(Filled::Full) | Err(_) => Read::Burst,
            }
        });
        read
    }

    fn exit(&mut self) -> ReaderExit {
        let exit = self.thread.take().map(JoinHandle::join);
        match exit {
            None => ReaderExit::Stopped,
            Some(Ok(exit)) => exit,
            Some(Err(_)) => ReaderExit::Failed(io::Error::other("the thread tun-reader panicked")),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
        self.receiver.close();
        self.exit();
    }
}

/// The thread's state.
struct Reading {
    source: Source,
    stop: Arc<Stop>,
    loan: Arc<Loan>,
    pool: Arc<Pool<OutboundBuffer>>,
    sender: mpsc::Sender<Lease<OutboundBuffer>>,
    limit: usize,
    /// Drained: wait for readability before reading again.
    is_drained: bool,
}

impl Reading {
    fn run(mut self) -> ReaderExit {
        while let Some(mut batch) = self.pool.take_blocking() {
            batch.clear();
            let filled = self.fill(&mut batch);
            let lends_device = batch.lends_device;
            if lends_device {
                self.loan.lend();
            }
            // INVARIANT: the channel has room for every batch of the pool, so it fails only when closed.
            if !batch.is_empty() && self.sender.try_send(batch).is_err() {
                return ReaderExit::Stopped;
            }
            if let Err(exit) = filled {
                return exit;
            }
            if lends_device && !self.loan.wait_for_return() {
                return ReaderExit::Stopped;
            }
        }
        ReaderExit::Stopped
    }

    /// Waits for the first packet, then reads all that are there, up to the limit.
    fn fill(&mut self, batch: &mut OutboundBuffer) -> Result<(), ReaderExit> {
        let mut waited = None;
        while batch.is_empty() {
            if self.is_drained {
                batch.calls.waits += 1;
                let began = Instant::now();
                let readable = self.source.io.wait_readable(&self.stop);
                if !readable.map_err(ReaderExit::Failed)? {
                    return Err(ReaderExit::Stopped);
                }
                waited = Some(began.elapsed());
            }
            let filled = self.source.fill(batch, self.limit)?;
            self.is_drained = matches!(filled, Filled::Drained);
        }
        let has_paused = waited >= Some(PAUSE);
        batch.lends_device = has_paused && self.is_drained && batch.packets() <= FEW;
        Ok(())
    }
}

/// Reads the device, on the reader thread or, while traffic is sparse, in the event loop.
#[derive(Clone, Debug)]
struct Source {
    io: Arc<dyn PacketIo>,
    /// Length of the virtio header, in bytes.
    framing: usize,
    /// Refused reads in a row: a packet or an empty device ends the row.
    refused: u32,
}

/// Refused reads in a row after which the device counts as broken. They are many times as many as its queue
/// holds, so they cannot all be packets, and take a fraction of a second, so a broken device is no load.
const MOST_REFUSED: u32 = 65_536;

/// Why reading into a batch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// Another read as large as the last could exceed the limit.
    Full,
    /// Nothing is left to read.
    Drained,
}

impl Source {
    /// Reads up to `limit` packets without waiting; a super-packet may exceed the limit. Refused reads count
    /// as packets.
    #[inline(never)]
    fn fill(&mut self, batch: &mut OutboundBuffer, limit: usize) -> Result<Filled, ReaderExit> {
        let (mut last, mut refused) = (1, 0);
        while batch.packets() + refused + last <= limit.max(last) {
            let Some(room) = batch.room(self.framing) else {
                break;
            };
            let read = self.io.read(room);
            batch.calls.reads += 1;
            match read {
                Ok(len) => {
                    self.refused = 0;
                    let before = batch.packets();
                    batch.accept(len, self.framing);
                    last = (batch.packets() - before).max(1);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        self.refused = 0;
                        return Ok(Filled::Drained);
                    }
                    Some(libc::EINTR) => {}
                    // The driver has discarded a packet whose GSO type the virtio header cannot express.
                    Some(libc::EINVAL) if self.refused < MOST_REFUSED => {
                        self.refused += 1;
                        refused += 1;
                        batch.refuse();
                    }
                    // A reader that the driver wakes while it detaches the file gets EFAULT; later ones
                    // get EBADFD.
                    Some(libc::EBADFD | libc::EFAULT) => return Err(ReaderExit::InterfaceDeleted),
                    _ => return Err(ReaderExit::Failed(error)),
                },
            }
        }
        Ok(Filled::Full)
    }
}

#[cfg(test)]
mod tests;
