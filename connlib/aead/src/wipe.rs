//! Wipes the traces of computations with keys from the stack.

use std::hint::black_box;

/// Most stack that a batch uses, in bytes: the frame of the kernel, with the states, key streams and
/// one-time keys that do not fit into registers, and the frame of its caller, with the tags.
///
/// This holds at `opt-level` 3, which release builds and tests have. Without inlining, at `z` and 0, a batch
/// uses more, and some of it stays. Zeroing more would cost time in each batch.
pub(crate) const BATCH: usize = 16 << 10;

/// Does `work`, then wipes `DEPTH` bytes of the stack below, which it may have used.
pub fn leave_no_trace<const DEPTH: usize, T>(work: impl FnOnce() -> T) -> T {
    let outcome = apart(work);
    wipe::<DEPTH>();
    outcome
}

/// Keeps the frame of `work` apart from the caller's frame, which is not wiped.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Wipes the `DEPTH` bytes of the stack below the caller's frame.
#[inline(never)]
pub fn wipe<const DEPTH: usize>() {
    // Nothing reads the array, but `black_box` makes the compiler write it.
    black_box([0_u8; DEPTH].as_mut_slice());
}

#[cfg(test)]
mod tests;
