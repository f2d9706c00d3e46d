//! The TUN device: reader and writer threads, batches, splitting and coalescing.
//!
//! ```text
//!            ┌──────────── outbound ────────────┐
//!  kernel ──▶│ reader: read until EAGAIN or full │──channel──▶ OutboundBatch::next ──▶ event loop
//!            │ outbound, cut: sums of segments   │             cut: one segment after the other,
//!            └──────────────────────────────────┘             in place
//!            ┌──────────── inbound ─────────────┐
//!  kernel ◀──│ writer, write: one write a train  │◀─channel─── InboundBatch::slot/commit ◀── event loop
//!            │ checksums verified, then joined   │             coalesce: which packet continues
//!            └──────────────────────────────────┘             which train
//! ```
//!
//! 1. [`Device::open`], [`Device::adopt`] or [`memory::pair`] gives a [`Device`].
//! 2. [`spawn_reader`] and [`spawn_writer`] start the two threads.
//! 3. Outbound: [`Reader::try_recv`] gives an [`OutboundBatch`], and [`OutboundBatch::next`] its
//!    packets one by one. Dropping the batch gives its buffer back.
//! 4. Inbound: [`Writer::take`] gives an [`InboundBatch`]; each packet is decrypted into a
//!    [`InboundBatch::slot`] and kept by [`InboundBatch::commit`]; [`Writer::submit`] sends the batch
//!    off, [`Writer::enqueue`] and [`Writer::wake`] several at once.
//!
//! Nothing allocates once every buffer of the two pools has been used. Deliberately left out:
//! which packets may pass (the state machine decides), routes and addresses, and any platform but
//! Linux, which would be another implementation of the private `device::PacketIo`.

mod checksum;
mod coalesce;
mod counters;
mod cut;
mod device;
mod hand_over;
mod inbound;
mod ip;
mod outbound;
mod pool;
mod reader;
mod schedule;
mod sparse;
#[doc(hidden)]
pub mod stages;
#[cfg(test)]
mod testing;
mod vnet;
mod write;
mod writer;

pub use coalesce::Coalesce;
pub use counters::{FailedPackets, WriterCounters};
pub use device::{Device, Offload, OffloadRequest, OpenError, TX_QUEUE_LEN, memory};
pub use inbound::{InboundBatch, MAX_SLOT};
pub use outbound::{OutboundBatch, OutboundPacket, ReadCalls};
pub use reader::{Reader, ReaderExit, TryRecv, spawn_reader};
pub use writer::{Writer, spawn_writer};

/// Packets that a batch is closed at.
pub const MAX_BATCH_PACKETS: usize = 50;

/// Capacity of a batch's buffer, in bytes.
pub const BATCH_BYTES: usize = 256 * 1024;

/// Outbound batches: one being filled, those in the channel and one being handed out.
pub const OUTBOUND_BATCHES: usize = 6;

/// Inbound batches: one being filled, those on their way and one being written.
pub const INBOUND_BATCHES: usize = 6;

/// All memory, in bytes, that one reader and one writer can ever hold.
pub const POOL_BYTES: usize = OUTBOUND_BATCHES
    * (BATCH_BYTES + size_of::<outbound::OutboundBuffer>())
    + INBOUND_BATCHES * (BATCH_BYTES + size_of::<inbound::InboundBuffer>())
    + 2 * write::JOINED_BYTES;

const _: () = assert!(POOL_BYTES < 6 * 1024 * 1024);
