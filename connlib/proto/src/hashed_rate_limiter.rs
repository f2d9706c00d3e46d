//! Limits the rate of addresses without counting each: an attacker can forge any number of them.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::Duration,
};

use crate::token_bucket::{Rate, TokenBucket};

/// Each address is hashed to one of these buckets, and shares it with others.
const BUCKETS: usize = 1024;

/// A fixed number of token buckets, chosen by a secret hash of the address.
///
/// A flood from few addresses empties few buckets. A flood from all of them leaves each address its
/// chance, and costs no more than the tokens of all buckets.
#[derive(Debug)]
pub(crate) struct HashedRateLimiter {
    hasher: RandomState,
    rate: Rate,
    buckets: Box<[TokenBucket]>,
}

impl HashedRateLimiter {
    /// Gives each bucket `per_second` tokens a second, all of which can be taken at once.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            hasher: RandomState::new(),
            rate: Rate::per_second(per_second, per_second),
            buckets: vec![TokenBucket::default(); BUCKETS].into_boxed_slice(),
        }
    }

    /// Takes a token from the bucket of `address`; returns whether there was one.
    pub(crate) fn admit(&mut self, address: IpAddr, now: Duration) -> bool {
        let bucket = self.hasher.hash_one(address) as usize % BUCKETS;
        self.buckets[bucket].take(self.rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(1000);

    #[test]
    fn all_addresses_together_get_no_more_than_the_tokens_of_all_buckets() {
        let mut limiter = HashedRateLimiter::new(10);
        let mut admitted = |at| {
            let addresses = (0..100_000u32).map(|n| IpAddr::V4(n.into()));
            addresses.filter(|a| limiter.admit(*a, at)).count()
        };
        assert_eq!(admitted(T0), BUCKETS * 10);
        assert_eq!(admitted(T0), 0);
        assert_eq!(admitted(T0 + Duration::from_millis(500)), BUCKETS * 5);
        assert_eq!(admitted(T0 + Duration::from_secs(60)), BUCKETS * 10);
    }

    #[test]
    fn a_greedy_address_leaves_the_others_their_tokens() {
        let mut limiter = HashedRateLimiter::new(10);
        let greedy = [192, 0, 2, 1].into();
        assert_eq!((0..100).filter(|_| limiter.admit(greedy, T0)).count(), 10);
        let others = (0..500u32).map(|n| IpAddr::V4((n << 8).into()));
        // All but the few that share its bucket.
        assert!(others.filter(|a| limiter.admit(*a, T0)).count() > 480);
    }
}
