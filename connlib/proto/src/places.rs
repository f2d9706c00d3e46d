//! Fair shares for more addresses than can be counted: an attacker can have any number of them.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::Duration,
};

use crate::sources::{source, take};

/// Each address has one, and shares it with the others there.
const PLACES: usize = 1024;

/// A fixed number of places, each with so much a second; which one an address has, nobody else knows.
///
/// Who floods from few addresses uses up few places. Who floods from all of them leaves each its
/// chance, and costs no more than all the places together.
#[derive(Debug)]
pub(crate) struct Places {
    hasher: RandomState,
    interval: Duration,
    burst: u32,
    /// When a place will have used up nothing of its share any more.
    idle_at: Box<[Duration]>,
}

impl Places {
    /// Places with so much a second, all of which may be had at once.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            hasher: RandomState::new(),
            interval: Duration::from_secs(1) / per_second,
            burst: per_second,
            idle_at: vec![Duration::ZERO; PLACES].into_boxed_slice(),
        }
    }

    /// Takes one from the share of the place of `address`, or says that there is nothing left of it.
    pub(crate) fn admit(&mut self, address: IpAddr, now: Duration) -> bool {
        let place = self.hasher.hash_one(source(address)) as usize % PLACES;
        take(&mut self.idle_at[place], self.interval, self.burst, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(1000);

    #[test]
    fn all_addresses_together_have_no_more_than_all_places() {
        let mut places = Places::new(10);
        let mut admitted = |at| {
            let addresses = (0..100_000u32).map(|n| IpAddr::V4(n.into()));
            addresses.filter(|a| places.admit(*a, at)).count()
        };
        assert_eq!(admitted(T0), PLACES * 10);
        assert_eq!(admitted(T0), 0);
        assert_eq!(admitted(T0 + Duration::from_millis(500)), PLACES * 5);
        assert_eq!(admitted(T0 + Duration::from_secs(60)), PLACES * 10);
    }

    #[test]
    fn one_address_leaves_the_others_theirs() {
        let mut places = Places::new(10);
        let greedy = [192, 0, 2, 1].into();
        assert_eq!((0..100).filter(|_| places.admit(greedy, T0)).count(), 10);
        let others = (0..500u32).map(|n| IpAddr::V4((n << 8).into()));
        // But for the few that have the same place.
        assert!(others.filter(|a| places.admit(*a, T0)).count() > 480);
    }
}
