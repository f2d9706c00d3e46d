//! Decides the fate of the n-th datagram of a direction, from a seed.

use std::{ops::RangeInclusive, time::Duration};

use rand::{Rng, RngExt, SeedableRng, rngs::Xoshiro256PlusPlus, seq::index};

/// Maximum number of flipped bits per datagram.
const MOST_FLIPS: usize = 4;

/// Impairments of datagrams, as shares from 0 to 1 of all datagrams.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Impairments {
    /// The share that is lost.
    pub(crate) drop: f64,
    /// The share that is sent twice; each copy has its own fate otherwise.
    pub(crate) duplicate: f64,
    /// The share that is altered: bits flipped, or truncated.
    pub(crate) corrupt: f64,
    /// The share that is held back until others have overtaken it.
    pub(crate) hold: f64,
    /// How many datagrams of the same direction overtake one that is held back, unless it is released before.
    pub(crate) overtaken_by: RangeInclusive<u64>,
    /// Maximum delay of a datagram; every datagram is delayed by a random part of it.
    pub(crate) delay: Duration,
}

/// No impairments.
impl Default for Impairments {
    fn default() -> Self {
        Self {
            drop: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            hold: 0.0,
            overtaken_by: 1..=1,
            delay: Duration::ZERO,
        }
    }
}

/// The direction of datagrams through a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the left end to the right one.
    ToRight,
    /// From the right end to the left one.
    ToLeft,
}

impl Direction {
    /// Both directions, by number.
    pub(crate) const BOTH: [Self; 2] = [Self::ToRight, Self::ToLeft];
}

/// The fates of all datagrams of a direction, one after the other.
///
/// The fate of the n-th datagram follows from the seed, the direction, the impairments and its own length;
/// earlier datagrams do not change it.
#[derive(Clone, Debug)]
pub(crate) struct Fates {
    seeds: Xoshiro256PlusPlus,
    /// Impairments of the datagrams that arrive from now on.
    pub(super) impairments: Impairments,
}

/// A copy of a datagram, and how it passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// The bytes to send on.
    pub(crate) datagram: Vec<u8>,
    /// Whether they differ from the received bytes.
    pub(crate) is_altered: bool,
    /// How many other datagrams overtake it.
    pub(crate) overtaken_by: u64,
    /// Its minimum delay.
    pub(crate) delay: Duration,
}

impl Fates {
    /// The fates that `seed` determines for `direction`.
    pub(crate) fn new(seed: u64, direction: Direction, impairments: Impairments) -> Self {
        let mut root = Xoshiro256PlusPlus::seed_from_u64(seed);
        let seeds = [root.next_u64(), root.next_u64()];
        Self {
            seeds: Xoshiro256PlusPlus::seed_from_u64(seeds[direction as usize]),
            impairments,
        }
    }

    /// The copies of the next datagram to send on: none, one or two.
    pub(crate) fn next(&mut self, datagram: &[u8]) -> Vec<Passage> {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(self.seeds.next_u64());
        let is_dropped = dice.random_bool(self.impairments.drop);
        let is_doubled = dice.random_bool(self.impairments.duplicate);
        let copies = match is_dropped {
            true => 0,
            false => 1 + usize::from(is_doubled),
        };
        std::iter::repeat_with(|| self.passage(&mut dice, datagram.to_vec()))
            .take(copies)
            .collect()
    }

    fn passage(&self, dice: &mut Xoshiro256PlusPlus, mut datagram: Vec<u8>) -> Passage {
        let odds = &self.impairments;
        let is_altered = dice.random_bool(odds.corrupt) && !datagram.is_empty();
        let is_held = dice.random_bool(odds.hold);
        let overtaken_by = match is_held {
            true => dice.random_range(odds.overtaken_by.clone()),
            false => 0,
        };
        let delay = dice.random_range(Duration::ZERO..=odds.delay);
        if is_altered {
            alter(dice, &mut datagram);
        }
        Passage {
            datagram,
            is_altered,
            overtaken_by,
            delay,
        }
    }
}

/// Alters a datagram: truncates it, or flips distinct bits.
fn alter(dice: &mut Xoshiro256PlusPlus, datagram: &mut Vec<u8>) {
    if dice.random_bool(0.25) {
        return datagram.truncate(dice.random_range(0..datagram.len()));
    }
    let flips = dice.random_range(1..=MOST_FLIPS);
    for bit in index::sample(dice, datagram.len() * 8, flips) {
        datagram[bit / 8] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: [u8; 100] = [0xa5; 100];

    fn all() -> Impairments {
        Impairments {
            drop: 0.1,
            duplicate: 0.2,
            corrupt: 0.3,
            hold: 0.4,
            overtaken_by: 5..=50,
            delay: Duration::from_millis(7),
        }
    }

    fn fates(seed: u64, direction: Direction) -> Vec<Vec<Passage>> {
        let mut fates = Fates::new(seed, direction, all());
        (0..20_000).map(|_| fates.next(&DATAGRAM)).collect()
    }

    #[test]
    fn a_fate_follows_from_the_seed_and_the_direction_and_not_from_earlier_datagrams() {
        let known = fates(7, Direction::ToRight);
        assert_ne!(known, fates(8, Direction::ToRight));
        assert_ne!(known, fates(7, Direction::ToLeft));
        let mut other = Fates::new(7, Direction::ToRight, Impairments::default());
        other.next(&[1]);
        other.impairments = all();
        for fate in &known[1..] {
            assert_eq!(other.next(&DATAGRAM), *fate);
        }
    }

    #[test]
    fn shares_are_as_asked_for() {
        let fates = fates(1, Direction::ToRight);
        let passages: Vec<_> = fates.iter().flatten().collect();
        let share = |of: usize, all: usize| of as f64 / all as f64;
        let copies = |n| fates.iter().filter(|fate| fate.len() == n).count();
        let altered = passages.iter().filter(|p| p.is_altered).count();
        let held = passages.iter().filter(|p| p.overtaken_by > 0).count();
        for (found, asked) in [
            (share(copies(0), fates.len()), 0.1),
            (share(copies(2), fates.len()), 0.9 * 0.2),
            (share(altered, passages.len()), 0.3),
            (share(held, passages.len()), 0.4),
        ] {
            assert!((found - asked).abs() < 0.02, "{found} instead of {asked}");
        }
        assert!(passages.iter().all(|p| {
            (p.overtaken_by == 0 || all().overtaken_by.contains(&p.overtaken_by))
                && p.delay <= all().delay
                && p.is_altered == (p.datagram != DATAGRAM)
        }));
        let mut of_nothing = Fates::new(3, Direction::ToLeft, all());
        assert!((0..1_000).all(|_| of_nothing.next(&[]).iter().all(|p| !p.is_altered)));
    }
}
