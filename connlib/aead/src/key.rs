//! A session's key in one direction.

use std::fmt;

use ring::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use zeroize::{Zeroize, ZeroizeOnDrop, optimization_barrier};

/// A key of ChaCha20-Poly1305, wiped when dropped.
///
/// A move leaves a copy behind, and [`new`](Self::new) leaves one in the stack frames of ring. So create a
/// key where it stays, and wipe the stack afterwards.
pub struct Key {
    /// Little-endian, as the state has them (RFC 8439 §2.3).
    pub(crate) words: [u32; 8],
    pub(crate) ring: LessSafeKey,
}

impl Key {
    /// A key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self {
            words: words_of(bytes),
            ring: ring_key(bytes),
        }
    }

    fn wipe(&mut self) {
        self.words.zeroize();
        // ring's copy can only be overwritten.
        self.ring = ring_key(&[0; 32]);
        optimization_barrier(&self.ring);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl ZeroizeOnDrop for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

pub(crate) fn words_of(bytes: &[u8; 32]) -> [u32; 8] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|n| u32::from_le_bytes(words[n]))
}

fn ring_key(bytes: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, bytes);
    LessSafeKey::new(key.expect("every 32 bytes are a key"))
}

#[cfg(test)]
mod tests;
