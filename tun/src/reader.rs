//! The thread that reads the TUN: block for the first packet, take what else is there, hand it over.

use std::{io, sync::Arc, thread::JoinHandle};

use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::{
    CHANNEL_DEPTH, Device, MAX_BATCH_PACKETS, OUTBOUND_BATCHES,
    device::{PacketIo, Stop},
    outbound::{Outbound, OutboundBatch},
    pool::{Lease, Pool},
    vnet::VNET_LEN,
};

/// Starts the thread `tun-reader`, which closes a batch at `batch` packets (1 to
/// [`MAX_BATCH_PACKETS`]; others are brought into that range).
///
/// # Errors
/// When the thread or its eventfd cannot be made.
pub fn spawn_reader(device: &Device, batch: usize) -> io::Result<Reader> {
    let (sender, receiver) = mpsc::channel(CHANNEL_DEPTH);
    let stop = Arc::new(Stop::new()?);
    let pool = Pool::new(OUTBOUND_BATCHES, Outbound::new);
    let reading = Reading {
        io: Arc::clone(&device.io),
        stop: Arc::clone(&stop),
        pool: Arc::clone(&pool),
        sender,
        limit: batch.clamp(1, MAX_BATCH_PACKETS),
        framing: if device.offload().vnet_hdr {
            VNET_LEN
        } else {
            0
        },
        is_drained: false,
    };
    let thread = std::thread::Builder::new()
        .name("tun-reader".to_owned())
        .spawn(move || reading.run())?;
    Ok(Reader {
        receiver,
        pool,
        stop,
        thread: Some(thread),
    })
}

/// The receiving end of the reader thread; dropping it ends the thread.
#[derive(Debug)]
pub struct Reader {
    receiver: mpsc::Receiver<Lease<Outbound>>,
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
    /// Takes a batch if one is waiting.
    ///
    /// # Errors
    /// [`TryRecv`] says why there is none.
    pub fn try_recv(&mut self) -> Result<OutboundBatch, TryRecv> {
        match self.receiver.try_recv() {
            Ok(batch) => Ok(OutboundBatch(batch)),
            Err(TryRecvError::Empty) => Err(TryRecv::Empty),
            Err(TryRecvError::Disconnected) => Err(TryRecv::Closed(self.exit())),
        }
    }

    /// Waits for a batch. Cancel-safe.
    ///
    /// # Errors
    /// The reason why none will come any more, as [`TryRecv::Closed`].
    pub async fn recv(&mut self) -> Result<OutboundBatch, ReaderExit> {
        match self.receiver.recv().await {
            Some(batch) => Ok(OutboundBatch(batch)),
            None => Err(self.exit()),
        }
    }

    /// Tells the thread to end. Batches already in the channel can still be received.
    pub fn stop(&self) {
        self.stop.signal();
        self.pool.close();
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
    io: Arc<dyn PacketIo>,
    stop: Arc<Stop>,
    pool: Arc<Pool<Outbound>>,
    sender: mpsc::Sender<Lease<Outbound>>,
    limit: usize,
    /// Length of the virtio header.
    framing: usize,
    /// The last read found nothing: wait before the next.
    is_drained: bool,
}

impl Reading {
    fn run(mut self) -> ReaderExit {
        while let Some(mut batch) = self.pool.take_blocking() {
            batch.clear();
            let filled = self.fill(&mut batch);
            if !batch.is_empty() && self.sender.blocking_send(batch).is_err() {
                return ReaderExit::Stopped;
            }
            if let Err(exit) = filled {
                return exit;
            }
        }
        ReaderExit::Stopped
    }

    /// Reads until the batch is full or, once something is in it, until nothing is left to read.
    ///
    /// Full means that another read like the last one would pass the limit.
    fn fill(&mut self, batch: &mut Outbound) -> Result<(), ReaderExit> {
        let mut last = 1;
        while batch.packets() + last <= self.limit.max(last) {
            if self.is_drained {
                if !batch.is_empty() {
                    return Ok(());
                }
                batch.calls.waits += 1;
                if !self
                    .io
                    .wait_readable(&self.stop)
                    .map_err(ReaderExit::Failed)?
                {
                    return Err(ReaderExit::Stopped);
                }
            }
            let Some(room) = batch.room(self.framing) else {
                return Ok(());
            };
            let read = self.io.read(room);
            batch.calls.reads += 1;
            self.is_drained = false;
            match read {
                Ok(len) => {
                    let before = batch.packets();
                    batch.accept(len, self.framing);
                    last = (batch.packets() - before).max(1);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => self.is_drained = true,
                    Some(libc::EINTR) => {}
                    // The driver gives EFAULT to a reader that it wakes while it detaches the file,
                    // and EBADFD to every one after that.
                    Some(libc::EBADFD | libc::EFAULT) => return Err(ReaderExit::InterfaceDeleted),
                    _ => return Err(ReaderExit::Failed(error)),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
