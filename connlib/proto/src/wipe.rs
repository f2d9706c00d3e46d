//! Wiping what computations with keys leave on the stack.
//!
//! A value that is moved stays where it was, and boringtun passes keys by value. Nobody looks below
//! the end of the stack, but what comes to lie there next may take it along: the unused bytes of an
//! enum are copied with it.

use std::hint::black_box;

/// No handshake, and no change of keys, reaches deeper; in bytes.
const DEPTH: usize = 48 << 10;

/// Does `work` on a stack that is wiped before and after, as far as it may reach.
///
/// It must not be called where the stack may have less than 64 KiB left.
pub fn leave_no_trace<T>(work: impl FnOnce() -> T) -> T {
    wipe();
    let outcome = apart(work);
    wipe();
    outcome
}

/// Keeps the frame of `work` out of the caller's, which is not wiped.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn wipe() {
    // Nothing is read from it again, which must not be a reason to leave it out.
    black_box([0_u8; DEPTH].as_mut_slice());
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u8 = 0x5e;

    #[test]
    fn a_key_that_was_on_the_stack_is_gone() {
        let mut place = 0;
        leave_no_trace(|| place = leave_a_key());
        // SAFETY: the address is on this thread's stack, whose pages stay mapped; whatever lies
        // there now, a byte can be read.
        let left = unsafe { std::ptr::without_provenance::<u8>(place).read_volatile() };
        assert_ne!(left, KEY);
    }

    #[inline(never)]
    fn leave_a_key() -> usize {
        let mut key = [KEY; 4_096];
        black_box(&mut key)[2_048..].as_ptr().addr()
    }
}
