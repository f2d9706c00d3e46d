//! An allocator that wipes what is given back.
//!
//! boringtun and ring drop keys as they are, a vector that grows leaves its former copy behind, and
//! so does every channel. Here none of it outlives its memory's owner. It costs where memory is given
//! back, which the data path does not do (`connlib/tunnel/tests/allocations.rs`).

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, whose blocks are zeroed before they can be had again.
#[derive(Debug)]
pub struct Wiping<A = System>(pub A);

// SAFETY: every block comes from the inner allocator and goes back to it with its own layout.
// `realloc` is the provided one: a new block, a copy, and the old block given back, and so wiped.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is the caller's, of that size, and nobody uses it any more. Unlike a
        // plain write before free(3), explicit_bzero(3) is not optimised away.
        unsafe { libc::explicit_bzero(block.cast(), layout.size()) };
        // SAFETY: as the caller promises.
        unsafe { self.0.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn blocks_come_back_wiped_and_a_vector_that_grew_leaves_no_copy() {
        let inspected = Wiping(Inspecting::default());
        let layouts = [1, 7, 64, 10_000].map(|size| Layout::from_size_align(size, 1).unwrap());
        for layout in layouts {
            // SAFETY: the sizes are not zero, all is written within them, and each block is given
            // back once, with the layout that it then has.
            unsafe {
                let block = inspected.alloc(layout);
                block.write_bytes(0x5e, layout.size());
                let grown = inspected.realloc(block, layout, 2 * layout.size());
                assert_eq!(*grown.add(layout.size() - 1), 0x5e);
                let layout = Layout::from_size_align(2 * layout.size(), 1).unwrap();
                inspected.dealloc(grown, layout);
            }
        }
        let Inspecting { blocks, unwiped } = inspected.0;
        assert_eq!(blocks.into_inner(), 2 * layouts.len());
        assert_eq!(unwiped.into_inner(), 0);
    }

    #[test]
    fn a_block_that_is_asked_for_zeroed_is_zeroed_and_comes_back_wiped() {
        let inspected = Wiping(Inspecting::default());
        let layout = Layout::from_size_align(4_096, 8).unwrap();
        // SAFETY: the size is not zero, all is read and written within it, and the block is given
        // back once, with its own layout.
        unsafe {
            let block = inspected.alloc_zeroed(layout);
            let bytes = std::slice::from_raw_parts(block, layout.size());
            assert!(bytes.iter().all(|byte| *byte == 0));
            block.write_bytes(0x5e, layout.size());
            inspected.dealloc(block, layout);
        }
        let Inspecting { blocks, unwiped } = inspected.0;
        assert_eq!((blocks.into_inner(), unwiped.into_inner()), (1, 0));
    }

    /// Looks at what it is given back.
    #[derive(Default)]
    struct Inspecting {
        blocks: AtomicUsize,
        unwiped: AtomicUsize,
    }

    // SAFETY: it hands everything on to the system's allocator.
    unsafe impl GlobalAlloc for Inspecting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promises.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the block is the caller's; a byte that was never written was wiped, too.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            let unwiped = bytes.iter().filter(|byte| **byte != 0).count();
            self.unwiped.fetch_add(unwiped, Ordering::Relaxed);
            self.blocks.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(block, layout) }
        }
    }
}
