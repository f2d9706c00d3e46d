//! Single stages of the path, without device or threads, for the benches.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
};

use convoy_packet::{checksum::sum, vnet::VNET_LEN};

use crate::{
    Coalesce, InboundBatch, OutboundBatch,
    device::{PacketIo, Stop},
    inbound::InboundBuffer,
    outbound::OutboundBuffer,
    pool::Pool,
    write::BatchWriter,
};

/// Most batches of an [`Intake`] or an [`Outlet`] in use: more than a bench prepares at a time.
const BATCHES: usize = 4096;

/// The ones'-complement sum of RFC 1071.
#[must_use]
pub fn checksum(data: &[u8]) -> u16 {
    sum(data)
}

/// The reader thread's work on each read.
#[derive(Debug)]
pub struct Intake(Arc<Pool<OutboundBuffer>>);

impl Default for Intake {
    fn default() -> Self {
        Self(Pool::new(BATCHES, OutboundBuffer::new))
    }
}

impl Intake {
    /// Makes a batch of `reads`, each a virtio header and a packet; leaves out those that do not fit.
    #[must_use]
    pub fn batch(&self, reads: &[&[u8]]) -> Option<OutboundBatch> {
        let mut batch = self.0.take()?;
        batch.clear();
        for read in reads {
            let Some(room) = batch.room(VNET_LEN) else {
                break;
            };
            room[..read.len()].copy_from_slice(read);
            batch.accept(read.len(), VNET_LEN);
        }
        Some(OutboundBatch(batch))
    }
}

/// The writer thread's work on a batch; the device accepts everything and keeps nothing.
#[derive(Debug)]
pub struct Outlet {
    pool: Arc<Pool<InboundBuffer>>,
    writer: BatchWriter,
    coalesce: Coalesce,
}

impl Outlet {
    /// Makes an outlet that coalesces these protocols.
    #[must_use]
    pub fn new(coalesce: Coalesce) -> Self {
        Self {
            pool: Pool::new(BATCHES, InboundBuffer::new),
            writer: BatchWriter::new(Arc::new(Nothing), true, Arc::default(), None),
            coalesce,
        }
    }

    /// An empty batch.
    #[must_use]
    pub fn take(&self) -> Option<InboundBatch> {
        let mut batch = self.pool.take()?;
        batch.clear(self.coalesce);
        Some(InboundBatch(batch))
    }

    /// Writes the batch, train by train; returns the number of writes.
    pub fn write(&mut self, mut batch: InboundBatch) -> u64 {
        let before = batch.0.counters.writes;
        // Fails only if the device takes no more, and this one takes everything.
        let _ = self.writer.write(&mut batch.0);
        batch.0.counters.writes - before
    }
}

/// A device that takes everything and keeps nothing.
#[derive(Debug)]
struct Nothing;

impl PacketIo for Nothing {
    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(std::hint::black_box(bytes).len())
    }

    fn readable(&self) -> BorrowedFd<'_> {
        unreachable!("INVARIANT: nobody waits for it")
    }

    fn wait_writable(&self, _: &Stop) -> io::Result<bool> {
        Ok(false)
    }

    fn name(&self) -> io::Result<String> {
        Ok("nothing".to_owned())
    }

    fn mtu(&self) -> io::Result<u16> {
        Ok(1420)
    }

    fn set_mtu(&self, _: u16) -> io::Result<()> {
        Ok(())
    }

    fn network_namespace(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Headers;

    #[test]
    fn a_train_that_is_cut_and_coalesced_again_takes_one_write() {
        let (header, packet) = Headers::new(true, true).super_packet(&[7; 9_000], 1_000);
        let read = [&header.to_bytes()[..], &packet].concat();
        let mut outlet = Outlet::new(Coalesce {
            tcp: true,
            udp: true,
        });
        let mut cut = Intake::default().batch(&[&read]).unwrap();
        let mut coalesced = outlet.take().unwrap();
        let mut packets = 0;
        while let Some(packet) = cut.next() {
            let slot = coalesced.slot(packet.bytes().len()).unwrap();
            slot.copy_from_slice(packet.bytes());
            coalesced.commit(packet.bytes().len());
            packets += 1;
        }
        assert_eq!((packets, outlet.write(coalesced)), (9, 1));
    }
}
