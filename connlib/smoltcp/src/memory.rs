//! The memory of a connection's two buffers.

use std::{collections::HashMap, io, ptr, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Buffers of a connection, in bytes.
///
/// A receive buffer is 65,535 shifted by the window scale that smoltcp derives from it: a segment that answers our
/// SYN is measured against the SYN's unscaled window shifted by that scale, which must not exceed the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) receive: usize,
    pub(super) send: usize,
}

/// One stream moves several Gbit/s through them at a delay of up to a millisecond, and 200 Mbit/s at 20.
const LARGE: Sizes = Sizes {
    receive: 65_535 << 3,
    send: 8 * 65_536,
};
const MEDIUM: Sizes = Sizes {
    receive: 65_535,
    send: 65_536,
};
const SMALL: Sizes = Sizes {
    receive: 16_384,
    send: 16_384,
};

/// Buffers that are more than small, the largest first, and how many connections have them at most.
const TIERS: [(Sizes, usize); 2] = [(LARGE, 160), (MEDIUM, 1024)];
/// How many times as much as is left to others a peer may have.
const SHARE: usize = 4;
/// Connections of a peer that are not established before its next ones get small buffers.
const MOST_LARGE_HALF_OPEN: usize = 32;

impl Sizes {
    const fn total(self) -> usize {
        self.receive + self.send
    }

    /// The tier that these belong to; none if they are small.
    fn tier(self) -> Option<usize> {
        TIERS.iter().position(|(sizes, _)| *sizes == self)
    }
}

/// Buffers that peers have.
///
/// A peer gets at most four times as many of a tier as it leaves to all others, so that whatever one peer holds, the next one
/// gets some.
#[derive(Debug, Default)]
pub(super) struct Shares {
    used: [usize; TIERS.len()],
    of_peers: HashMap<u32, [usize; TIERS.len()]>,
}

impl Shares {
    /// Returns the buffers of another connection of a peer that has this many half-open ones.
    pub(super) fn of_next(&self, peer: u32, half_open: usize) -> Sizes {
        if half_open >= MOST_LARGE_HALF_OPEN {
            return SMALL;
        }
        let own = self.of_peers.get(&peer).copied().unwrap_or_default();
        let has_room = |tier: &usize| own[*tier] < SHARE * (TIERS[*tier].1 - self.used[*tier]);
        let tier = (0..TIERS.len()).find(has_room);
        tier.map_or(SMALL, |tier| TIERS[tier].0)
    }

    /// Counts the buffers of a connection that begins.
    pub(super) fn take(&mut self, peer: u32, sizes: Sizes) {
        if let Some(tier) = sizes.tier() {
            self.used[tier] += 1;
            self.of_peers.entry(peer).or_default()[tier] += 1;
        }
    }

    /// Forgets the buffers of a connection that has ended.
    pub(super) fn give_back(&mut self, peer: u32, sizes: Sizes) {
        let (Some(tier), Some(own)) = (sizes.tier(), self.of_peers.get_mut(&peer)) else {
            return;
        };
        self.used[tier] -= 1;
        own[tier] -= 1;
        if *own == [0; TIERS.len()] {
            self.of_peers.remove(&peer);
        }
    }
}

/// All buffers together stay below this, in bytes, and most of it is never touched.
pub(super) const MOST_MEMORY: usize = TIERS[0].1 * LARGE.total()
    + TIERS[1].1 * MEDIUM.total()
    + (super::settings::MAX_FLOWS - TIERS[0].1 - TIERS[1].1) * SMALL.total();

const _: () = assert!(MOST_MEMORY < 512 << 20);

/// Pages that the kernel provides when they are first written and takes back when the connection ends.
///
/// They bypass the program's allocator, because that may wipe what is freed: it would touch every page of each
/// connection, however little it has carried.
#[derive(Debug)]
pub(super) struct Memory {
    start: *mut u8,
    sizes: Sizes,
}

// SAFETY: the pages belong to this value alone, wherever it is.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn new(sizes: Sizes) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an address that nothing uses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), sizes.total(), protection, flags) }?;
        let start = start.cast();
        Ok(Self { start, sizes })
    }

    /// The receive buffer and the send buffer.
    ///
    /// # Safety
    /// The caller calls this once, and uses neither after the memory was dropped.
    pub(super) unsafe fn buffers(&mut self) -> (&'static mut [u8], &'static mut [u8]) {
        // SAFETY: both lie in the mapping and do not overlap; the kernel has zeroed them.
        unsafe {
            let receive = slice::from_raw_parts_mut(self.start, self.sizes.receive);
            let behind = self.start.add(self.sizes.receive);
            (receive, slice::from_raw_parts_mut(behind, self.sizes.send))
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and nothing uses it any more. Only a wrong address could fail.
        let _ = unsafe { munmap(self.start.cast(), self.sizes.total()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins this many connections of a peer; returns how many of them are large, medium and small.
    fn begin(shares: &mut Shares, peer: u32, count: usize) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..count {
            let sizes = shares.of_next(peer, 0);
            shares.take(peer, sizes);
            counts[sizes.tier().unwrap_or(2)] += 1;
        }
        counts
    }

    #[test]
    fn whatever_one_peer_holds_leaves_large_buffers_to_others() {
        let mut shares = Shares::default();
        assert_eq!(begin(&mut shares, 1, 8_000), [128, 820, 7_052]);
        assert_eq!(begin(&mut shares, 2, 1_000), [26, 164, 810]);
        assert_eq!(begin(&mut shares, 3, 20), [5, 15, 0]);
    }

    #[test]
    fn half_open_connections_of_a_peer_make_only_its_own_next_ones_small() {
        let shares = Shares::default();
        assert_eq!(shares.of_next(1, MOST_LARGE_HALF_OPEN), SMALL);
        assert_eq!(shares.of_next(2, 0), LARGE);
    }

    #[test]
    fn what_ends_gives_its_share_back() {
        let mut shares = Shares::default();
        begin(&mut shares, 1, 200);
        for sizes in [[LARGE; 128].as_slice(), &[MEDIUM; 72]].concat() {
            shares.give_back(1, sizes);
        }
        assert_eq!(shares.used, [0; 2]);
        assert!(shares.of_peers.is_empty());
    }
}
