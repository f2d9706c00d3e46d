//! Bytes that were moved, and the bounds that were met.

use std::sync::atomic::{AtomicU64, Ordering};

use super::pressure::{Pressure, Pressures};

/// The bytes that were moved, counted as they move, and the bounds that were met.
#[derive(Debug, Default)]
pub struct Moved {
    /// From the first connection to the second.
    pub outbound: AtomicU64,
    /// From the second connection to the first.
    pub inbound: AtomicU64,
    met: Pressures,
}

impl Moved {
    /// Counts how often the relay has met a bound.
    #[must_use]
    pub fn met(&self, pressure: Pressure) -> u64 {
        self.met.of(pressure)
    }

    pub(super) fn meet(&self, pressure: Pressure) {
        self.met.count(pressure);
    }

    /// Counts bytes from a client to a target.
    pub fn count_outbound(&self, bytes: usize) {
        self.outbound.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes from a target to a client.
    pub fn count_inbound(&self, bytes: usize) {
        self.inbound.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
