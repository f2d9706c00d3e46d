//! An allocator that wipes memory when it is freed.
//!
//! ring and snow drop keys without wiping them; a vector that grows leaves its old copy behind,
//! and so does a channel. Under this allocator no copy outlives its owner. Only freeing costs more,
//! and the data path frees nothing (`connlib/tunnel/tests/allocations.rs`).

use std::alloc::{GlobalAlloc, Layout, System};

/// Wraps an allocator and zeroes each block before it can be reused.
#[derive(Debug)]
pub struct Wiping<A = System>(pub A);

// SAFETY: every block comes from the inner allocator and returns to it with its own layout. The
// default `realloc` allocates, copies and frees, so it wipes the old block too.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller owns the block, it has the layout's size, and nothing uses it any
        // more. Unlike a plain write before free(3), explicit_bzero(3) is not optimised away.
        unsafe { libc::explicit_bzero(block.cast(), layout.size()) };
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn freed_blocks_are_wiped_and_a_vector_that_grew_leaves_no_copy() {
        let inspected = Wiping(Inspecting::default());
        let layouts = [1, 7, 64, 10_000].map(|size| Layout::from_size_align(size, 1).unwrap());
        for layout in layouts {
            // SAFETY: no size is zero, all writes stay within the block, and each block is freed
            // once, with the layout that it has by then.
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
    fn a_zeroed_block_is_zeroed_and_is_wiped_when_freed() {
        let inspected = Wiping(Inspecting::default());
        let layout = Layout::from_size_align(4_096, 8).unwrap();
        // SAFETY: the size is not zero, all reads and writes stay within the block, and it is freed
        // once, with its own layout.
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

    /// Counts freed blocks, and bytes in them that were not wiped.
    #[derive(Default)]
    struct Inspecting {
        blocks: AtomicUsize,
        unwiped: AtomicUsize,
    }

    // SAFETY: it forwards everything to the system allocator.
    unsafe impl GlobalAlloc for Inspecting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: guaranteed by the caller.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller owns the block, and wiping has initialised every byte.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            let unwiped = bytes.iter().filter(|byte| **byte != 0).count();
            self.unwiped.fetch_add(unwiped, Ordering::Relaxed);
            self.blocks.fetch_add(1, Ordering::Relaxed);
            // SAFETY: guaranteed by the caller.
            unsafe { System.dealloc(block, layout) }
        }
    }
}
