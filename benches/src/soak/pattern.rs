//! Bytes that both ends of a stream can generate: any loss, repetition or exchange shows.

/// Bytes of a block, which a sender writes at once.
pub(super) const BLOCK: usize = 64 * 1024;

/// An endless stream of words, each the seed and its own number, scrambled, so that no two are equal.
pub(super) struct Pattern {
    seed: u64,
    /// Bytes generated so far.
    position: u64,
    block: Vec<u8>,
}

impl Pattern {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            position: 0,
            block: Vec::with_capacity(BLOCK + 8),
        }
    }

    /// The next `length` bytes.
    fn next(&mut self, length: usize) -> &[u8] {
        let (first, offset) = (self.position / 8, self.position as usize % 8);
        let words = first..first + (offset + length).div_ceil(8) as u64;
        self.block.clear();
        for word in words {
            // An odd factor permutes the words (Fibonacci hashing).
            let scrambled = (self.seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.block.extend_from_slice(&scrambled.to_le_bytes());
        }
        self.position += length as u64;
        &self.block[offset..offset + length]
    }

    /// The next block.
    pub(super) fn next_block(&mut self) -> &[u8] {
        self.next(BLOCK)
    }

    /// Compares the next bytes with `received`; the error is the first place that differs.
    pub(super) fn compare(&mut self, received: &[u8]) -> Result<(), usize> {
        let expected = self.next(received.len());
        if expected == received {
            return Ok(());
        }
        let differs = received.iter().zip(expected).position(|(a, b)| a != b);
        Err(differs.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_bytes_are_those_sent_however_they_are_cut() {
        let mut sender = Pattern::new(1);
        let bytes = [sender.next_block().to_vec(), sender.next_block().to_vec()].concat();
        for cut in [1_449, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK] {
            let mut pattern = Pattern::new(1);
            assert!(
                bytes
                    .chunks(cut)
                    .all(|piece| pattern.compare(piece).is_ok()),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_changed_byte_and_a_lost_repeated_or_strange_block_are_found() {
        let mut sender = Pattern::new(1);
        let [first, second, third] = [0; 3].map(|_| sender.next_block().to_vec());
        let strange = Pattern::new(2).next_block().to_vec();
        for wrong in [&first, &third, &strange] {
            let mut pattern = Pattern::new(1);
            assert_eq!(pattern.compare(&first), Ok(()));
            assert!(pattern.compare(wrong).is_err());
        }
        let mut changed = second;
        changed[77] ^= 1;
        let mut pattern = Pattern::new(1);
        assert_eq!(
            pattern
                .compare(&first)
                .and_then(|()| pattern.compare(&changed)),
            Err(77)
        );
    }
}
