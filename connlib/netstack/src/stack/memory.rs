//! The memory of a connection's two buffers.

use std::{io, ptr, slice};

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

/// Connections that have large buffers, and those that have more than small ones.
const MOST_LARGE: usize = 128;
const MOST_MEDIUM: usize = 1024;
/// The same for connections that are not established: in a flood, new ones get small buffers.
const MOST_LARGE_HALF_OPEN: usize = 32;

impl Sizes {
    /// The buffers of another connection.
    pub(super) fn of_next(flows: usize, half_open: usize) -> Self {
        if flows < MOST_LARGE && half_open < MOST_LARGE_HALF_OPEN {
            LARGE
        } else if flows < MOST_MEDIUM && half_open < MOST_LARGE_HALF_OPEN {
            MEDIUM
        } else {
            SMALL
        }
    }

    const fn total(self) -> usize {
        self.receive + self.send
    }
}

/// All buffers together stay below this, in bytes, and most of it is never touched.
pub(super) const MOST_MEMORY: usize = MOST_LARGE * LARGE.total()
    + (MOST_MEDIUM - MOST_LARGE) * MEDIUM.total()
    + (super::MAX_FLOWS - MOST_MEDIUM) * SMALL.total();

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
