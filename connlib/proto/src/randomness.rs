//! Random bytes for ephemeral keys and session indices: the system's, or a test's.

use rand::{TryRng, rngs::SysRng};
use zeroize::Zeroizing;

/// Fills a buffer with random bytes; returns whether it could.
type Fill = dyn FnMut(&mut [u8]) -> bool + Send;

/// A source of random bytes.
pub(crate) struct Randomness(Box<Fill>);

impl Default for Randomness {
    /// Uses the system's generator: one within the process would keep secret state in its memory.
    fn default() -> Self {
        Self::new(|bytes| SysRng.try_fill_bytes(bytes).is_ok())
    }
}

impl std::fmt::Debug for Randomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Randomness(…)")
    }
}

impl Randomness {
    pub(crate) fn new(fill: impl FnMut(&mut [u8]) -> bool + Send + 'static) -> Self {
        Self(Box::new(fill))
    }

    /// A private key, not yet clamped; `None` if there is no randomness.
    pub(crate) fn key(&mut self) -> Option<Zeroizing<[u8; 32]>> {
        let mut key = Zeroizing::new([0; 32]);
        (self.0)(&mut key[..]).then_some(key)
    }

    /// A number; `None` if there is no randomness.
    pub(crate) fn number(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Some bytes, no secret; `None` if there is no randomness.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.0)(&mut bytes).then_some(bytes)
    }

    /// A session index for which `is_taken` is false; `None` if there is no randomness.
    pub(crate) fn index(&mut self, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        loop {
            let mut index = [0; 4];
            if !(self.0)(&mut index) {
                return None;
            }
            let index = u32::from_le_bytes(index);
            if !is_taken(index) {
                return Some(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_is_taken_is_drawn_again() {
        let mut drawn = 0;
        let mut randomness = Randomness::new(move |bytes| {
            drawn += 1;
            bytes.copy_from_slice(&u32::to_le_bytes(drawn / 2));
            true
        });
        assert_eq!(randomness.index(|index| index < 3), Some(3));
    }

    #[test]
    fn the_systems_generator_repeats_nothing() {
        let mut randomness = Randomness::default();
        assert_ne!(randomness.key(), randomness.key());
    }

    #[test]
    fn without_randomness_there_is_no_key() {
        let mut randomness = Randomness::new(|_| false);
        assert_eq!(randomness.key(), None);
        assert_eq!(randomness.index(|_| false), None);
    }
}
