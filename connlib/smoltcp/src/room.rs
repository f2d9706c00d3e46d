//! Memory in which a thread makes packets.

use std::cell::RefCell;

use super::phy::SCRATCH;

thread_local! {
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

/// Lends this thread's room for packets, [`SCRATCH`] bytes.
pub(super) fn with_room<R>(make: impl FnOnce(&mut [u8]) -> R) -> R {
    ROOM.with_borrow_mut(|room| make(room))
}
