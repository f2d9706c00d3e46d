//! The parts of a datagram that are known.

use std::ops::Range;

/// Most parts with gaps between them: more than any order makes of the longest datagram at IPv6's smallest MTU.
const MAX_PIECES: usize = 32;

/// Parts of a datagram, in order, none next to another.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The start and the end of each.
    all: [(usize, usize); MAX_PIECES],
    count: usize,
}

impl Pieces {
    /// Adds a part that overlaps none; returns whether there was room for it.
    pub(super) fn add(&mut self, part: &Range<usize>) -> bool {
        let place = self.known().partition_point(|it| it.1 < part.start);
        // Those next to it become one with it.
        let next = self.known()[place..].iter();
        let joined = next.take_while(|it| it.0 <= part.end).count();
        let last = place + joined;
        if joined == 0 {
            if self.count == MAX_PIECES {
                return false;
            }
            self.all.copy_within(place..self.count, place + 1);
            self.all[place] = (part.start, part.end);
            self.count += 1;
            return true;
        }
        let start = part.start.min(self.all[place].0);
        let end = part.end.max(self.all[last - 1].1);
        self.all.copy_within(last..self.count, place + 1);
        self.all[place] = (start, end);
        self.count -= joined - 1;
        true
    }

    /// Returns whether any byte of this part is known.
    pub(super) fn overlap(&self, part: &Range<usize>) -> bool {
        let mut known = self.known().iter();
        known.any(|it| it.0 < part.end && part.start < it.1)
    }

    /// Returns whether every byte of this part is known.
    pub(super) fn hold(&self, part: &Range<usize>) -> bool {
        let mut known = self.known().iter();
        known.any(|it| it.0 <= part.start && part.end <= it.1)
    }

    fn known(&self) -> &[(usize, usize)] {
        &self.all[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_next_to_each_other_become_one_in_any_order() {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut pieces = Pieces::default();
            for n in order {
                let part = n * 8..n * 8 + 8;
                assert!(!pieces.overlap(&part) && !pieces.hold(&part));
                assert!(!pieces.hold(&(0..24)));
                assert!(pieces.add(&part));
                assert!(pieces.overlap(&(part.start + 3..100)) && pieces.hold(&part));
            }
            assert_eq!((pieces.count, pieces.known()[0]), (1, (0, 24)));
        }
    }

    #[test]
    fn gaps_are_bounded() {
        let mut pieces = Pieces::default();
        let part = |n: usize| 16 * n..16 * n + 8;
        assert!((0..MAX_PIECES).rev().all(|n| pieces.add(&part(n))));
        assert!(!pieces.add(&part(MAX_PIECES)));
        assert!(pieces.add(&(8..16)), "closes a gap");
        assert!(pieces.add(&part(MAX_PIECES)));
    }
}
