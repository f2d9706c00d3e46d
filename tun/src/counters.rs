//! Counters of writes, as plain integers that travel with the batches.

use std::io;

use crate::bounds::MAX_BATCH_PACKETS;

/// Counts of writes and their outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterCounters {
    /// Calls of `write(2)`, failed ones included.
    pub writes: u64,
    /// Successful writes, by the number of packets that they carried.
    pub packets_per_write: [u64; MAX_BATCH_PACKETS + 1],
    /// Packets lost, by cause.
    pub failed: FailedPackets,
    /// Packets with a wrong checksum, which were left out of their train and written unchanged.
    pub bad_checksums: u64,
    /// Super-packets that the kernel refused and whose packets were then written one by one.
    pub refused_trains: u64,
}

/// Packets that a write lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedPackets {
    /// `EIO`: the link is down.
    pub link_down: u64,
    /// `ENOBUFS` or `ENOMEM`.
    pub no_memory: u64,
    /// `EINVAL`: the kernel does not recognize an IP packet.
    pub refused: u64,
    /// `EBADFD`: the interface was deleted.
    pub deleted: u64,
    /// A short write, or any other error.
    pub other: u64,
}

impl Default for WriterCounters {
    fn default() -> Self {
        Self {
            writes: 0,
            packets_per_write: [0; MAX_BATCH_PACKETS + 1],
            failed: FailedPackets::default(),
            bad_checksums: 0,
            refused_trains: 0,
        }
    }
}

impl WriterCounters {
    /// Counts the outcome of a write of `packets` packets.
    pub(crate) fn settle(&mut self, outcome: io::Result<()>, packets: usize) {
        match outcome {
            Ok(()) => self.packets_per_write[packets] += 1,
            Err(error) => self.failed.count(&error, packets),
        }
    }

    /// Adds `other` to this, and sets `other` to zero.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        let other = std::mem::take(other);
        self.writes += other.writes;
        for (mine, theirs) in self
            .packets_per_write
            .iter_mut()
            .zip(other.packets_per_write)
        {
            *mine += theirs;
        }
        self.failed.link_down += other.failed.link_down;
        self.failed.no_memory += other.failed.no_memory;
        self.failed.refused += other.failed.refused;
        self.failed.deleted += other.failed.deleted;
        self.failed.other += other.failed.other;
        self.bad_checksums += other.bad_checksums;
        self.refused_trains += other.refused_trains;
    }
}

impl FailedPackets {
    fn count(&mut self, error: &io::Error, packets: usize) {
        let counter = match error.raw_os_error() {
            Some(libc::EIO) => &mut self.link_down,
            Some(libc::ENOBUFS | libc::ENOMEM) => &mut self.no_memory,
            Some(libc::EINVAL) => &mut self.refused,
            Some(libc::EBADFD) => &mut self.deleted,
            _ => &mut self.other,
        };
        *counter += packets as u64;
    }
}
