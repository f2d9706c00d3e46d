//! Bounds of the batches between the event loop and the two threads.

/// Packets at which a batch is closed. One super-packet may take an outbound batch beyond it.
pub const MAX_BATCH_PACKETS: usize = 50;

/// Capacity of a batch's buffer, in bytes.
pub const BATCH_BYTES: usize = 256 * 1024;

/// Number of outbound batches: one being filled, those in the channel and one being handed out.
pub const OUTBOUND_BATCHES: usize = 6;

/// Number of inbound batches: one being filled, those in the queue and one being written.
pub const INBOUND_BATCHES: usize = 6;
