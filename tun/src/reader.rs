//! The thread that reads the TUN: block for the first packet, take what else is there, hand it over.

mod turn;

use std::{io, sync::Arc, thread::JoinHandle, time::Instant};

use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::{
    Device, MAX_BATCH_PACKETS, OUTBOUND_BATCHES,
    device::{PacketIo, Stop},
    outbound::{Outbound, OutboundBatch},
    pool::{Lease, Pool},
    vnet::VNET_LEN,
};
use turn::{Direct, FAR_BETWEEN, FEW, IN_A_ROW, Turn};

/// Starts the thread `tun-reader`, which closes a batch at `batch` packets (1 to
/// [`MAX_BATCH_PACKETS`]; others are brought into that range).
///
/// # Errors
/// When the thread or its eventfd cannot be made.
pub fn spawn_reader(device: &Device, batch: usize) -> io::Result<Reader> {
    // Room for every batch of the pool: that is where the thread waits.
    let (sender, receiver) = mpsc::channel(OUTBOUND_BATCHES);
    let stop = Arc::new(Stop::new()?);
    let pool = Pool::new(OUTBOUND_BATCHES, Outbound::new);
    let turn = Arc::new(Turn::default());
    let limit = batch.clamp(1, MAX_BATCH_PACKETS);
    let source = Source {
        io: Arc::clone(&device.io),
        framing: if device.offload().vnet_hdr {
            VNET_LEN
        } else {
            0
        },
    };
    let reading = Reading {
        source: source.clone(),
        stop: Arc::clone(&stop),
        turn: Arc::clone(&turn),
        pool: Arc::clone(&pool),
        sender,
        limit,
        is_drained: false,
        few_in_a_row: 0,
    };
    let thread = std::thread::Builder::new()
        .name("tun-reader".to_owned())
        .spawn(move || reading.run())?;
    Ok(Reader {
        receiver,
        direct: Direct::new(source, Arc::clone(&turn), Arc::clone(&pool), limit),
        turn,
        pool,
        stop,
        thread: Some(thread),
    })
}

/// The receiving end of the reader thread; dropping it ends the thread.
#[derive(Debug)]
pub struct Reader {
    receiver: mpsc::Receiver<Lease<Outbound>>,
    direct: Direct,
    turn: Arc<Turn>,
    pool: Arc<Pool<Outbound>>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<ReaderExit>>,
}

/// Why no batch was received.
#[derive(Debug)]
pub enum TryRecv {
    /// None is waiting.
    Empty,
    /// None will come any more. Said once with the reason, and as [`ReaderExit::Stopped`] after that.
    Closed(ReaderExit),
}

/// Why the reader thread ended.
#[derive(Debug)]
pub enum ReaderExit {
    /// It was told to.
    Stopped,
    /// The interface is gone.
    InterfaceDeleted,
    /// A read failed in a way that none should.
    Failed(io::Error),
}

impl Reader {
    /// Takes a batch if one is waiting, in the channel or, while it is the event loop's turn, in the
    /// device.
    ///
    /// # Errors
    /// [`TryRecv`] says why there is none.
    pub fn try_recv(&mut self) -> Result<OutboundBatch, TryRecv> {
        match self.receiver.try_recv() {
            Ok(batch) => Ok(self.take_over(batch)),
            Err(TryRecvError::Empty) => self.direct.read().map(OutboundBatch).ok_or(TryRecv::Empty),
            Err(TryRecvError::Disconnected) => Err(TryRecv::Closed(self.exit())),
        }
    }

    /// Waits for a batch. Cancel-safe. To be called in a tokio runtime with I/O.
    ///
    /// # Errors
    /// The reason why none will come any more, as [`TryRecv::Closed`].
    pub async fn recv(&mut self) -> Result<OutboundBatch, ReaderExit> {
        loop {
            tokio::select! {
                biased;
                batch = self.receiver.recv() => {
                    return batch.map(|batch| self.take_over(batch)).ok_or_else(|| self.exit());
                }
                () = self.direct.readable() => {
                    if let Some(batch) = self.direct.read() {
                        return Ok(OutboundBatch(batch));
                    }
                }
            }
        }
    }

    /// Whether the caller reads the device alone, from the thread's next batch on. At first it does
    /// not: the thread reads beside it, unless packets are few.
    pub fn set_alone(&self, is_alone: bool) {
        self.turn.set_alone(is_alone);
    }

    /// Tells the thread to end. Batches already in the channel can still be received.
    pub fn stop(&self) {
        self.stop.signal();
        self.turn.stop();
        self.pool.close();
    }

    fn take_over(&mut self, batch: Lease<Outbound>) -> OutboundBatch {
        if batch.hands_over {
            self.direct.begin();
        }
        OutboundBatch(batch)
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

/// What the thread holds.
struct Reading {
    source: Source,
    stop: Arc<Stop>,
    turn: Arc<Turn>,
    pool: Arc<Pool<Outbound>>,
    sender: mpsc::Sender<Lease<Outbound>>,
    limit: usize,
    /// The last read found nothing: wait before the next.
    is_drained: bool,
    /// Batches, up to the last, that were a few packets after a wait.
    few_in_a_row: u32,
}

impl Reading {
    fn run(mut self) -> ReaderExit {
        while let Some(mut batch) = self.pool.take_blocking() {
            batch.clear();
            let filled = self.fill(&mut batch);
            let hands_over = batch.hands_over;
            if hands_over {
                self.turn.hand_over();
            }
            // INVARIANT: the channel has room for every batch of the pool: it fails only when closed.
            if !batch.is_empty() && self.sender.try_send(batch).is_err() {
                return ReaderExit::Stopped;
            }
            if let Err(exit) = filled {
                return exit;
            }
            if hands_over && !self.turn.wait() {
                return ReaderExit::Stopped;
            }
        }
        ReaderExit::Stopped
    }

    /// Waits for the first packet, and reads what else is there.
    fn fill(&mut self, batch: &mut Outbound) -> Result<(), ReaderExit> {
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
        let is_few = waited.is_some() && self.is_drained && batch.packets() <= FEW;
        let is_far_between = waited >= Some(FAR_BETWEEN);
        self.few_in_a_row = if is_few { self.few_in_a_row + 1 } else { 0 };
        let is_seldom = is_few && (is_far_between || self.few_in_a_row >= IN_A_ROW);
        batch.hands_over = is_seldom || self.turn.is_alone();
        if batch.hands_over {
            self.few_in_a_row = 0;
        }
        Ok(())
    }
}

/// What is read: by the thread, or by the event loop.
#[derive(Clone, Debug)]
struct Source {
    io: Arc<dyn PacketIo>,
    /// Length of the virtio header.
    framing: usize,
}

/// Why reading into a batch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// Another read like the last one would pass the limit.
    Full,
    /// Nothing is left to read.
    Drained,
}

impl Source {
    /// Reads without waiting, up to `limit` packets; a super-packet alone may pass it.
    #[inline(never)]
    fn fill(&self, batch: &mut Outbound, limit: usize) -> Result<Filled, ReaderExit> {
        let mut last = 1;
        while batch.packets() + last <= limit.max(last) {
            let Some(room) = batch.room(self.framing) else {
                break;
            };
            let read = self.io.read(room);
            batch.calls.reads += 1;
            match read {
                Ok(len) => {
                    let before = batch.packets();
                    batch.accept(len, self.framing);
                    last = (batch.packets() - before).max(1);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(Filled::Drained),
                    Some(libc::EINTR) => {}
                    // The driver gives EFAULT to a reader that it wakes while it detaches the file,
                    // and EBADFD to every one after that.
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
