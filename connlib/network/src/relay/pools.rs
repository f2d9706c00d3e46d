//! Memory that all connections of a relay share.

use super::{
    budget::Budget,
    pool::{Buffers, Pipes},
};

/// Most bytes that blocked pipes have left in memory.
const MOST_PARKED: usize = 64 << 20;

/// Buffers, pipes, and memory for what blocked pipes hold.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) buffers: Buffers,
    pub(super) pipes: Pipes,
    /// Bytes of blocked pipes.
    pub(super) parked: Budget,
}

impl Pools {
    /// Creates pools of buffers and of pipes of these sizes in bytes.
    pub(super) fn new(buffer: usize, pipe: usize) -> Self {
        Self {
            buffers: Buffers::new(buffer),
            pipes: Pipes::new(pipe),
            parked: Budget::new(MOST_PARKED),
        }
    }

    #[cfg(test)]
    pub(super) fn empty() -> Self {
        Self {
            buffers: Buffers::with(0),
            pipes: Pipes::with(0),
            parked: Budget::new(0),
        }
    }
}
