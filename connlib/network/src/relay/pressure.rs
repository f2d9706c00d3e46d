//! Counts how often a relay has met its bounds.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bound that a relay has met. No byte is lost; they move in smaller steps, or through memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// A blocked direction gave its pipe back: what was in it went into memory.
    Parked,
    /// There is no memory left for that, in all or of the rule's or peer's share: the pipe stayed.
    ParkingFull,
    /// The rule or peer has its share of the pipes.
    PipeShareUsedUp,
    /// All pipes are taken.
    PipesUsedUp,
    /// The kernel makes no pipe of this size: the user or the process has too many.
    PipeRefused,
    /// The rule or peer has its share of the buffers.
    BufferShareUsedUp,
    /// All buffers are taken.
    BuffersUsedUp,
}

impl Pressure {
    /// All bounds.
    pub const ALL: [Self; 7] = [
        Self::Parked,
        Self::ParkingFull,
        Self::PipeShareUsedUp,
        Self::PipesUsedUp,
        Self::PipeRefused,
        Self::BufferShareUsedUp,
        Self::BuffersUsedUp,
    ];

    /// The name of its counter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::ParkingFull => "parking_full",
            Self::PipeShareUsedUp => "pipe_share_used_up",
            Self::PipesUsedUp => "pipes_used_up",
            Self::PipeRefused => "pipe_refused",
            Self::BufferShareUsedUp => "buffer_share_used_up",
            Self::BuffersUsedUp => "buffers_used_up",
        }
    }
}

/// Number of times that each was met.
#[derive(Debug, Default)]
pub(super) struct Pressures([AtomicU64; Pressure::ALL.len()]);

impl Pressures {
    pub(super) fn count(&self, pressure: Pressure) {
        self.0[pressure as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn of(&self, pressure: Pressure) -> u64 {
        self.0[pressure as usize].load(Ordering::Relaxed)
    }
}
