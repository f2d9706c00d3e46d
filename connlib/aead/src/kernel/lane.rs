//! One packet in each lane, and lengths over all lanes.

use crate::lanes::{LANES, REGISTER};

/// One packet: its key, nonce (RFC 8439 §2.3), additional data and text.
pub(crate) struct Lane<'a, T> {
    pub(crate) key: &'a [u32; 8],
    pub(crate) nonce: [u32; 3],
    pub(crate) aad: &'a [u8],
    pub(crate) text: T,
}

impl<T: Default> Lane<'_, T> {
    pub(super) fn idle() -> Self {
        Self {
            key: &[0; 8],
            nonce: [0; 3],
            aad: &[],
            text: T::default(),
        }
    }
}

/// The bytes that each lane has left when `block` begins.
#[inline(always)]
pub(super) fn left(lens: &[usize; LANES], block: usize) -> [usize; LANES] {
    let mut left = *lens;
    for len in &mut left {
        *len = len.saturating_sub(block * REGISTER);
    }
    left
}

#[inline(always)]
pub(super) fn longest(lens: &[usize; LANES]) -> usize {
    lens.iter().fold(0, |longest, len| longest.max(*len))
}

#[inline(always)]
pub(super) fn shortest(lens: &[usize; LANES]) -> usize {
    lens.iter()
        .fold(usize::MAX, |shortest, len| shortest.min(*len))
}
