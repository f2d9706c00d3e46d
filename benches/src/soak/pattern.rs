//! Bytes that both ends of a stream can generate: any loss, repetition or exchange shows.

/// Bytes of a block, which a sender writes at once.
pub(super) const BLOCK: usize = 64 * 1024;
/// The number of places in the noise at which blocks begin.
const OFFSETS: usize = 4_096;

/// An endless stream: blocks of noise, each beginning with its number, so that no two are equal.
pub(super) struct Pattern {
    noise: Vec<u8>,
    seed: u64,
    block: Vec<u8>,
    number: u64,
    /// How much of the block has been compared.
    compared: usize,
}

impl Pattern {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            noise: noise(seed),
            seed,
            block: vec![0; BLOCK],
            number: 0,
            compared: BLOCK,
        }
    }

    /// The next block.
    pub(super) fn next_block(&mut self) -> &[u8] {
        let offset = self.number as usize % OFFSETS;
        self.block
            .copy_from_slice(&self.noise[offset..offset + BLOCK]);
        self.block[..8].copy_from_slice(&(self.seed ^ self.number).to_le_bytes());
        self.number += 1;
        &self.block
    }

    /// Compares the next bytes with `received`; the error is the place in `received` that differs.
    pub(super) fn compare(&mut self, mut received: &[u8]) -> Result<(), usize> {
        let length = received.len();
        while !received.is_empty() {
            if self.compared == BLOCK {
                self.next_block();
                self.compared = 0;
            }
            let expected = &self.block[self.compared..];
            let part = expected.len().min(received.len());
            if received[..part] != expected[..part] {
                let mut pairs = received.iter().zip(expected);
                let within = pairs.position(|(a, b)| a != b).unwrap_or_default();
                return Err(length - received.len() + within);
            }
            self.compared += part;
            received = &received[part..];
        }
        Ok(())
    }
}

/// xorshift64* (Vigna 2016).
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    });
    words.take((BLOCK + OFFSETS) / 8).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(seed: u64, blocks: usize) -> Vec<u8> {
        let mut pattern = Pattern::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            bytes.extend_from_slice(pattern.next_block());
        }
        bytes
    }

    #[test]
    fn the_expected_bytes_are_those_sent_however_they_are_cut() {
        let bytes = sent(1, 4);
        for cut in [1_448, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK] {
            let mut pattern = Pattern::new(1);
            for piece in bytes.chunks(cut) {
                assert_eq!(pattern.compare(piece), Ok(()), "in pieces of {cut}");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_found_where_it_is() {
        let mut bytes = sent(1, 2);
        bytes[BLOCK + 77] ^= 1;
        assert_eq!(Pattern::new(1).compare(&bytes), Err(BLOCK + 77));
    }

    #[test]
    fn a_block_that_is_lost_repeated_or_of_another_stream_is_found() {
        let bytes = sent(1, OFFSETS + 2);
        let block = |number: usize| &bytes[number * BLOCK..(number + 1) * BLOCK];
        let differs = |second: &[u8]| {
            let mut pattern = Pattern::new(1);
            assert_eq!(pattern.compare(block(0)), Ok(()));
            pattern.compare(second).is_err()
        };
        assert!(!differs(block(1)));
        assert!(differs(block(0)), "repeated");
        assert!(differs(block(2)), "lost");
        assert!(differs(block(1 + OFFSETS)), "of the same noise");
        assert!(differs(&sent(2, 2)[BLOCK..]), "of another stream");
    }
}
