//! What happens to the n-th datagram of a direction, from a seed.

use std::{ops::RangeInclusive, time::Duration};

use rand::{Rng, RngExt, SeedableRng, rngs::Xoshiro256PlusPlus, seq::index};

/// The most bits that are flipped in one datagram.
const MOST_FLIPS: usize = 4;

/// What a network does to datagrams; shares of all of them, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairments {
    /// The share that is lost.
    pub drop: f64,
    /// The share that is sent twice; each copy has its own fate but for that.
    pub duplicate: f64,
    /// The share that is altered: bits flipped, or cut short.
    pub corrupt: f64,
    /// The share that is held back until others have overtaken it.
    pub hold: f64,
    /// How many of the same direction overtake what is held back, if so many come.
    pub overtaken_by: RangeInclusive<u64>,
    /// The longest time by which a datagram is delayed; each is, by less or more.
    pub delay: Duration,
}

/// Nothing bad.
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

/// Which way datagrams go through a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the left end to the right one.
    ToRight,
    /// From the right end to the left one.
    ToLeft,
}

impl Direction {
    /// Both, in the order of their numbers.
    pub const BOTH: [Self; 2] = [Self::ToRight, Self::ToLeft];
}

/// The fates of all datagrams of a direction, one after the other.
///
/// That of the n-th follows from the seed, the direction, the impairments, and its own length;
/// nothing that came before changes it.
#[derive(Clone, Debug)]
pub struct Fates {
    seeds: Xoshiro256PlusPlus,
    impairments: Impairments,
}

/// What is sent on of one datagram: nothing, itself, or two copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate(Vec<Passage>);

/// How one copy passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// What is changed in it.
    pub corruption: Option<Corruption>,
    /// How many others overtake it.
    pub overtaken_by: u64,
    /// The least time that it takes.
    pub delay: Duration,
}

/// A change that leaves no datagram as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// These bits are flipped; each is there once.
    Flip(Vec<usize>),
    /// Only so many bytes are left.
    Truncate(usize),
}

impl Fates {
    /// The fates that `seed` holds for `direction`.
    #[must_use]
    pub fn new(seed: u64, direction: Direction, impairments: Impairments) -> Self {
        let mut root = Xoshiro256PlusPlus::seed_from_u64(seed);
        let [to_right, to_left] = [root.next_u64(), root.next_u64()];
        let own = match direction {
            Direction::ToRight => to_right,
            Direction::ToLeft => to_left,
        };
        Self {
            seeds: Xoshiro256PlusPlus::seed_from_u64(own),
            impairments,
        }
    }

    /// Changes what happens from the next datagram on.
    pub fn impair(&mut self, impairments: Impairments) {
        self.impairments = impairments;
    }

    /// The fate of the next datagram, of `length` bytes.
    pub fn next(&mut self, length: usize) -> Fate {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(self.seeds.next_u64());
        let copies = match (
            dice.random_bool(self.impairments.drop),
            dice.random_bool(self.impairments.duplicate),
        ) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        Fate(
            (0..copies)
                .map(|_| self.passage(&mut dice, length))
                .collect(),
        )
    }

    fn passage(&self, dice: &mut Xoshiro256PlusPlus, length: usize) -> Passage {
        let Impairments {
            corrupt,
            hold,
            overtaken_by,
            delay,
            ..
        } = &self.impairments;
        let is_corrupt = dice.random_bool(*corrupt) && length > 0;
        let is_held = dice.random_bool(*hold);
        Passage {
            overtaken_by: match is_held {
                true => dice.random_range(overtaken_by.clone()),
                false => 0,
            },
            delay: dice.random_range(Duration::ZERO..=*delay),
            corruption: is_corrupt.then(|| corruption(dice, length)),
        }
    }
}

fn corruption(dice: &mut Xoshiro256PlusPlus, length: usize) -> Corruption {
    if dice.random_bool(0.25) {
        return Corruption::Truncate(dice.random_range(0..length));
    }
    let flips = dice.random_range(1..=MOST_FLIPS);
    Corruption::Flip(index::sample(dice, length * 8, flips).into_vec())
}

impl Fate {
    /// Whether nothing is sent on.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.0.is_empty()
    }

    /// One for each copy.
    #[must_use]
    pub fn passages(&self) -> &[Passage] {
        &self.0
    }
}

impl Corruption {
    /// Changes `datagram`, of the length that was told.
    pub fn apply(&self, datagram: &mut Vec<u8>) {
        match self {
            Self::Truncate(length) => datagram.truncate(*length),
            Self::Flip(bits) => bits
                .iter()
                .for_each(|bit| datagram[bit / 8] ^= 1 << (bit % 8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 100;

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

    fn fates(seed: u64, direction: Direction) -> Vec<Fate> {
        let mut fates = Fates::new(seed, direction, all());
        (0..20_000).map(|_| fates.next(LENGTH)).collect()
    }

    #[test]
    fn a_seed_says_it_all() {
        let known = fates(7, Direction::ToRight);
        assert_eq!(known, fates(7, Direction::ToRight));
        assert_ne!(known, fates(8, Direction::ToRight));
        assert_ne!(known, fates(7, Direction::ToLeft));
    }

    #[test]
    fn a_fate_does_not_hang_on_what_came_before() {
        let mut fates = [7, 7].map(|seed| Fates::new(seed, Direction::ToLeft, all()));
        fates[0].impair(Impairments::default());
        fates[0].next(1);
        fates[0].impair(all());
        fates[1].next(65_507);
        let [a, b] = fates.each_mut().map(|fates| fates.next(LENGTH));
        assert_eq!(a, b);
    }

    #[test]
    fn shares_are_as_asked_for() {
        let fates = fates(1, Direction::ToRight);
        let share = |count: usize, of: usize| count as f64 / of as f64;
        let of_fates = |with: fn(&Fate) -> bool| {
            share(fates.iter().filter(|fate| with(fate)).count(), fates.len())
        };
        let passages: Vec<_> = fates.iter().flat_map(Fate::passages).collect();
        let of_passages = |with: fn(&Passage) -> bool| {
            share(passages.iter().filter(|p| with(p)).count(), passages.len())
        };
        for (found, asked) in [
            (of_fates(Fate::is_dropped), 0.1),
            (of_fates(|fate| fate.passages().len() == 2), 0.9 * 0.2),
            (of_passages(|passage| passage.corruption.is_some()), 0.3),
            (of_passages(|passage| passage.overtaken_by > 0), 0.4),
        ] {
            assert!((found - asked).abs() < 0.02, "{found} instead of {asked}");
        }
        let held = |passage: &&&Passage| passage.overtaken_by > 0;
        assert!(
            passages
                .iter()
                .filter(held)
                .all(|passage| (5..=50).contains(&passage.overtaken_by))
        );
        assert!(passages.iter().all(|p| p.delay <= Duration::from_millis(7)));
    }

    #[test]
    fn what_is_corrupt_is_never_as_it_was() {
        let fates = fates(2, Direction::ToRight);
        let passages = fates.iter().flat_map(Fate::passages);
        for corruption in passages.filter_map(|passage| passage.corruption.as_ref()) {
            let mut datagram = vec![0xa5; LENGTH];
            corruption.apply(&mut datagram);
            assert_ne!(datagram, [0xa5; LENGTH], "{corruption:?}");
        }
    }

    #[test]
    fn an_empty_datagram_has_nothing_to_corrupt() {
        let mut fates = Fates::new(3, Direction::ToLeft, all());
        let intact = |fate: Fate| fate.passages().iter().all(|p| p.corruption.is_none());
        assert!((0..1_000).all(|_| intact(fates.next(0))));
    }

    #[test]
    fn by_default_nothing_happens() {
        let mut fates = Fates::new(4, Direction::ToRight, Impairments::default());
        let untouched = Passage {
            corruption: None,
            overtaken_by: 0,
            delay: Duration::ZERO,
        };
        assert!((0..1_000).all(|_| fates.next(LENGTH).passages() == [untouched.clone()]));
    }
}
