//! The fate of datagrams between hosts, decided by a seed.

use std::time::Duration;

/// One-way delay of a datagram in fair weather.
const DELAY: Duration = Duration::from_millis(10);

/// The fate of datagrams: how many in a hundred are lost and doubled, and the longest further delay in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub delay: u64,
}

impl Weather {
    /// Returns how long a datagram is under way, and in how many copies: none if it is lost.
    pub fn fate(self, dice: &mut Dice) -> (Duration, usize) {
        if dice.below(100) < self.lost {
            return (DELAY, 0);
        }
        let copies = 1 + usize::from(dice.below(100) < self.doubled);
        let further = Duration::from_millis(dice.below(self.delay + 1));
        (DELAY + further, copies)
    }
}

/// Numbers that look random (xorshift).
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
