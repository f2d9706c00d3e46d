//! Wipes the traces of computations with keys from the stack.

use std::hint::black_box;

/// Stack that a batch uses at most, in bytes: the frame of the kernel, with the states, key streams and
/// one-time keys that do not fit into registers, and that of its caller, with the tags.
///
/// That is so at `opt-level` 3, which release builds and tests have; without inlining, at `z` and 0, a batch
/// uses more and some of it stays. Zeroing more would cost each batch time.
pub(crate) const BATCH: usize = 16 << 10;

/// Does `work`, then wipes `DEPTH` bytes of the stack that it used.
pub fn leave_no_trace<const DEPTH: usize, T>(work: impl FnOnce() -> T) -> T {
    let outcome = apart(work);
    wipe::<DEPTH>();
    outcome
}

/// Keeps the frame of `work` out of the caller's frame, which is not wiped.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Wipes the next `DEPTH` bytes of the stack.
#[inline(never)]
pub fn wipe<const DEPTH: usize>() {
    // Nothing reads the array again; the compiler must write it nevertheless.
    black_box([0_u8; DEPTH].as_mut_slice());
}

#[cfg(test)]
mod tests;
