//! The TUN device: reader and writer threads, batches, cutting and coalescing.
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
//! 1. [`Device::open`], [`Device::adopt`], [`Device::over_socket`] or [`memory::pair`] gives a [`Device`].
//! 2. [`spawn_reader`] and [`spawn_writer`] start the two threads.
//! 3. Outbound: [`Reader::try_recv`] gives an [`OutboundBatch`], and [`OutboundBatch::next`] its
//!    packets one by one. Dropping the batch gives its buffer back.
//! 4. Inbound: [`Writer::take`] gives an [`InboundBatch`]. Decrypt each packet into an
//!    [`InboundBatch::slot`] and keep it with [`InboundBatch::commit`]. [`Writer::submit`] hands the
//!    batch to the thread; [`Writer::enqueue`] and [`Writer::wake`] do so for several at once.
//!
//! Nothing allocates per packet once every buffer of the two pools has been used. Deliberately left out:
//! filtering (the state machine decides which packets pass), routes and addresses, and platforms other
//! than Linux. Another platform would be another implementation of the private `device::PacketIo`.

mod bounds;
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
mod write;
mod writer;

pub use bounds::{BATCH_BYTES, INBOUND_BATCHES, MAX_BATCH_PACKETS, OUTBOUND_BATCHES};
pub use coalesce::Coalesce;
pub use convoy_types::Switch;
pub use counters::{FailedPackets, WriterCounters};
pub use device::{Device, Offload, OpenError, TX_QUEUE_LEN, memory};
pub use inbound::{InboundBatch, MAX_SLOT};
pub use outbound::{OutboundBatch, OutboundPacket, ReadCalls};
pub use reader::{Reader, ReaderExit, TryRecv, spawn_reader};
pub use schedule::preempt_nobody;
pub use writer::{Writer, spawn_writer};

/// Most memory that one reader and one writer hold, in bytes.
pub const POOL_BYTES: usize = OUTBOUND_BATCHES
    * (BATCH_BYTES + size_of::<outbound::OutboundBuffer>())
    + INBOUND_BATCHES * (BATCH_BYTES + size_of::<inbound::InboundBuffer>())
    + 2 * write::JOINED_BYTES;

const _: () = assert!(POOL_BYTES < 6 * 1024 * 1024);
