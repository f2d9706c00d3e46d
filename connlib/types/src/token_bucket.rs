//! A token bucket by the generic cell rate algorithm (GCRA), whose whole state is one point in time.

use std::time::Duration;

/// The refill rate and the size of a [`TokenBucket`].
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// `tokens` per second, at most `burst` of them at once.
    pub const fn per_second(tokens: u32, burst: u32) -> Self {
        Self {
            interval: Duration::from_nanos(1_000_000_000 / tokens as u64),
            burst,
        }
    }
}

/// A bucket of tokens, initially full. Its rate is a parameter of each call, as many buckets share one.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    full_at: Duration,
}

impl TokenBucket {
    /// Takes a token; returns whether there was one.
    pub fn take(&mut self, rate: Rate, now: Duration) -> bool {
        let has_token = self.has_token(rate, now);
        if has_token {
            self.full_at = self.full_at.max(now) + rate.interval;
        }
        has_token
    }

    /// Returns whether [`Self::take`] would succeed.
    pub fn has_token(&self, rate: Rate, now: Duration) -> bool {
        self.full_at.max(now) + rate.interval <= now + rate.interval * rate.burst
    }

    /// Returns whether the bucket is full, and so equivalent to a new one.
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::per_second(20, 5);
    const T0: Duration = Duration::from_secs(1000);

    #[test]
    fn a_burst_can_be_taken_at_once_and_then_tokens_come_at_the_rate() {
        let mut bucket = TokenBucket::default();
        assert_eq!(taken(&mut bucket, T0), 5);
        for n in 1..=20 {
            let at = T0 + n * Duration::from_millis(50);
            assert!(!bucket.has_token(RATE, at - Duration::from_nanos(1)));
            assert_eq!(taken(&mut bucket, at), 1, "token {n}");
        }
    }

    #[test]
    fn an_unused_bucket_fills_up_to_its_burst_and_no_further() {
        let mut bucket = TokenBucket::default();
        taken(&mut bucket, T0);
        let refilled = T0 + Duration::from_millis(250);
        assert!(!bucket.is_full(refilled - Duration::from_nanos(1)));
        assert!(bucket.is_full(refilled));
        assert_eq!(taken(&mut bucket, T0 + Duration::from_secs(3600)), 5);
    }

    #[test]
    fn looking_for_a_token_takes_none() {
        let bucket = TokenBucket::default();
        assert!((0..100).all(|_| bucket.has_token(RATE, T0)));
        assert!(bucket.is_full(T0));
    }

    fn taken(bucket: &mut TokenBucket, now: Duration) -> usize {
        (0..100).filter(|_| bucket.take(RATE, now)).count()
    }
}
