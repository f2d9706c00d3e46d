//! Wipes the traces of computations with keys from the stack.
//!
//! A move leaves the value's bytes behind, and libraries pass keys by value. Nothing reads below the end of
//! the stack, but a value that is later placed there may carry leftover bytes along: a copy of an enum
//! includes its unused bytes.

use convoy_aead::wipe;

/// Most stack that a handshake or a change of keys uses, in bytes.
const DEPTH: usize = 48 << 10;

/// Does `work`; wipes the stack that it may use both before and after.
///
/// Call it only where at least 64 KiB of stack are left.
pub fn leave_no_trace<T>(work: impl FnOnce() -> T) -> T {
    wipe::wipe::<DEPTH>();
    wipe::leave_no_trace::<DEPTH, _>(work)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, hint::black_box, os::unix::fs::FileExt};

    use super::*;

    const KEY: u8 = 0x5e;

    #[test]
    fn a_key_that_was_on_the_stack_is_gone() {
        let mut place = 0;
        leave_no_trace(|| place = leave_a_key());
        // The kernel reads it, as AddressSanitizer forbids this thread to.
        let (memory, mut left) = (File::open("/proc/self/mem").unwrap(), [0]);
        memory.read_exact_at(&mut left, place as u64).unwrap();
        assert_ne!(left, [KEY]);
    }

    #[inline(never)]
    fn leave_a_key() -> usize {
        let mut key = [KEY; 4_096];
        black_box(&mut key)[2_048..].as_ptr().addr()
    }
}
