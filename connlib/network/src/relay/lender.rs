//! Lends pipes and memory to a connection, and counts which bounds it has met.

use super::{
    budget::{Shortage, Taken, Tenant},
    moved::Moved,
    outcome::MIN_BUFFER,
    pool::{Lease, Pipe},
    pools::Pools,
    pressure::Pressure,
};

/// The pools of a relay, as the connections of one tenant may use them.
#[derive(Clone, Copy)]
pub(super) struct Lender<'a> {
    pub(super) pools: &'a Pools,
    pub(super) tenant: &'a Tenant,
    pub(super) moved: &'a Moved,
}

/// A buffer.
pub(super) enum Memory<'a> {
    Lent(Lease<'a, Box<[u8]>>),
    /// Nothing was to be lent.
    Own(Box<[u8]>),
}

/// Memory for what a blocked pipe holds.
pub(super) struct Parking<'a> {
    pub(super) bytes: Vec<u8>,
    _taken: Taken<'a>,
}

impl<'a> Lender<'a> {
    /// Lends an empty pipe, if there is one.
    pub(super) fn pipe(self) -> Option<Lease<'a, Pipe>> {
        let pipe = self.pools.pipes.take(&self.tenant.pipes);
        self.counted(pipe, |shortage| match shortage {
            Shortage::Tenant => Pressure::PipeShareUsedUp,
            Shortage::All => Pressure::PipesUsedUp,
            Shortage::Kernel => Pressure::PipeRefused,
        })
    }

    /// Lends a buffer, or else makes a small one.
    pub(super) fn memory(self) -> Memory<'a> {
        let lease = self.pools.buffers.take(&self.tenant.buffers);
        let lease = self.counted(lease, |shortage| match shortage {
            Shortage::Tenant => Pressure::BufferShareUsedUp,
            Shortage::All | Shortage::Kernel => Pressure::BuffersUsedUp,
        });
        match lease {
            Some(lease) => Memory::Lent(lease),
            None => Memory::Own(vec![0; MIN_BUFFER].into()),
        }
    }

    /// Lends memory for this many bytes of a blocked pipe.
    pub(super) fn parking(self, bytes: usize) -> Option<Parking<'a>> {
        let taken = self.pools.parked.take(bytes, &self.tenant.parked);
        let taken = self.counted(taken, |_| Pressure::ParkingFull)?;
        self.moved.meet(Pressure::Parked);
        Some(Parking {
            bytes: vec![0; bytes],
            _taken: taken,
        })
    }

    fn counted<T>(
        self,
        outcome: Result<T, Shortage>,
        pressure: impl Fn(Shortage) -> Pressure,
    ) -> Option<T> {
        outcome
            .inspect_err(|shortage| self.moved.meet(pressure(*shortage)))
            .ok()
    }
}

impl Memory<'_> {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(lease) => lease,
            Self::Own(bytes) => bytes,
        }
    }

    pub(super) fn give_back(self) {
        if let Self::Lent(lease) = self {
            lease.give_back();
        }
    }
}
