use std::cell::RefCell;

use convoy_packet::packet::LONGEST_PACKET;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; LONGEST_PACKET].into());
}

/// Lends this thread's memory for one packet: a buffer for each flow would be most of its memory.
pub(super) fn with_scratch<T>(f: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| f(scratch))
}
