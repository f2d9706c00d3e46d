//! Sizes of packets and batches.

/// Most packets in a batch.
pub const SLOTS: usize = 16;

/// Length of the tag after a ciphertext, in bytes.
pub const TAG: usize = 16;

/// Longest plaintext, in bytes. With its tag it is longer than any UDP payload.
pub const MAX_PACKET: usize = 65_535 - TAG;
