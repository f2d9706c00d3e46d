//! Chooses the packets for the batch.
//!
//! All lanes take as long as the longest packet, so it pays to leave a few long packets to ring.

use crate::bounds::SLOTS;

/// The cost of sealing or opening, in picoseconds. Only the ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    /// A packet by ring, in addition to its bytes.
    pub(crate) ring_packet: u64,
    /// A byte by ring.
    pub(crate) ring_byte: u64,
    /// A batch, in addition to its blocks.
    pub(crate) batch: u64,
    /// A block of 64 bytes in all 16 lanes.
    pub(crate) batch_block: u64,
}

impl Costs {
    /// Measured on an Intel Sapphire Rapids by `cargo bench -p convoy-stages -- aead`.
    pub(crate) const MEASURED: Self = Self {
        ring_packet: 170_000,
        ring_byte: 500,
        batch: 450_000,
        batch_block: 281_000,
    };

    /// Makes every packet go by batch.
    pub(crate) const ALWAYS_BATCH: Self = Self {
        ring_packet: u64::MAX / 2 / SLOTS as u64,
        ring_byte: 0,
        batch: 0,
        batch_block: 0,
    };

    /// The length, in bytes, up to which packets of these `lens` go by batch, the others by ring; `None` if
    /// all go by ring.
    ///
    /// Tries each length as the longest of the batch: shorter packets then cost nothing.
    pub(crate) fn longest_in_batch(
        self,
        lens: impl Iterator<Item = usize> + Clone,
    ) -> Option<usize> {
        let mut best = (self.by_ring(lens.clone()), None);
        let mut candidate = lens.clone().max();
        while let Some(longest) = candidate {
            let others = lens.clone().filter(|len| *len > longest);
            let cost = self.by_batch(longest) + self.by_ring(others);
            if cost < best.0 {
                best = (cost, Some(longest));
            }
            candidate = lens.clone().filter(|len| *len < longest).max();
        }
        best.1
    }

    fn by_ring(self, lens: impl Iterator<Item = usize>) -> u64 {
        lens.map(|len| self.ring_packet + self.ring_byte * len as u64)
            .sum()
    }

    fn by_batch(self, longest: usize) -> u64 {
        self.batch + self.batch_block * longest.div_ceil(64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs::MEASURED;

    #[test]
    fn sixteen_equal_packets_go_by_batch() {
        for len in [0, 64, 1_420, 8_920, 65_535] {
            assert_eq!(longest_in_batch(&[len; 16]), Some(len));
        }
    }

    #[test]
    fn a_lone_packet_goes_by_ring() {
        for len in [64, 1_420, 8_920] {
            assert_eq!(longest_in_batch(&[len]), None);
        }
        assert_eq!(longest_in_batch(&[]), None);
    }

    #[test]
    fn a_long_packet_does_not_hold_up_the_short_ones() {
        let mut lens = [80; 16];
        lens[7] = 8_920;
        assert_eq!(longest_in_batch(&lens), Some(80));
    }

    #[test]
    fn short_packets_fill_free_lanes_beside_long_ones() {
        let mut lens = [1_420; 16];
        lens[3] = 80;
        assert_eq!(longest_in_batch(&lens), Some(1_420));
    }

    #[test]
    fn no_other_choice_is_cheaper() {
        let mut lens = [1_420; 13];
        lens[..5].copy_from_slice(&[0, 80, 80, 500, 9_000]);
        let chosen = COSTS.by_batch(1_420) + COSTS.by_ring([9_000].into_iter());
        assert_eq!(longest_in_batch(&lens), Some(1_420));
        for longest in lens {
            let others = lens.into_iter().filter(|len| *len > longest);
            assert!(COSTS.by_batch(longest) + COSTS.by_ring(others) >= chosen);
        }
    }

    fn longest_in_batch(lens: &[usize]) -> Option<usize> {
        COSTS.longest_in_batch(lens.iter().copied())
    }
}
