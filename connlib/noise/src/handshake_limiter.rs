//! A rate limiter for handshake messages while the node is under load (WireGuard paper §5.3).
//!
//! An address that has returned its cookie has a token bucket of its own. All others may be forged, and
//! share one token bucket of cookie replies.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use convoy_types::{Rate, TokenBucket};

/// Handshake messages per second above which the node is under load and asks for cookies.
const HANDSHAKES_PER_SECOND: u64 = 200;

/// Handshake messages from one address under load: 20 per second, 5 at once, as in the reference.
const PER_ADDRESS: Rate = Rate::per_second(20, 5);
/// Most addresses with a token bucket at any time.
const ADDRESSES: usize = 8192;
/// Least time between two searches for idle addresses among them.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(50);
/// Cookie replies to all addresses together: 65,536 per second, an eighth of them at once.
const COOKIE_REPLIES: Rate = Rate::per_second(65_536, 8192);

const SECOND: Duration = Duration::from_secs(1);

/// Counts handshake messages whose MAC1 is right, and limits them by address under load.
#[derive(Debug, Default)]
pub struct HandshakeLimiter {
    second: Duration,
    seen: u64,
    /// Attackers choose the keys of this map, so its hash must be keyed.
    addresses: HashMap<IpAddr, TokenBucket>,
    /// When idle addresses were last forgotten.
    swept: Duration,
    cookie_replies: TokenBucket,
}

impl HandshakeLimiter {
    /// Counts a message; returns whether the node is under load.
    pub fn count(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.second) >= SECOND {
            if self.seen <= HANDSHAKES_PER_SECOND {
                self.addresses.clear();
            }
            self.second = now;
            self.seen = 0;
        }
        self.seen += 1;
        self.seen > HANDSHAKES_PER_SECOND
    }

    /// Returns whether the next message would get a cookie reply if its MAC2 were wrong.
    pub fn would_ask(&self, now: Duration) -> bool {
        let is_loaded = self.seen >= HANDSHAKES_PER_SECOND;
        let is_same_second = now.saturating_sub(self.second) < SECOND;
        is_loaded && is_same_second && self.cookie_replies.has_token(COOKIE_REPLIES, now)
    }

    /// Returns whether to send one more cookie reply.
    pub fn may_send_cookie(&mut self, now: Duration) -> bool {
        self.cookie_replies.take(COOKIE_REPLIES, now)
    }

    /// Returns whether to handle a message from `address`, which has returned its cookie.
    pub fn admit(&mut self, address: IpAddr, now: Duration) -> bool {
        let network = network(address);
        if self.addresses.len() >= ADDRESSES && !self.addresses.contains_key(&network) {
            if now.saturating_sub(self.swept) >= BETWEEN_SWEEPS {
                self.swept = now;
                self.addresses.retain(|_, bucket| !bucket.is_full(now));
            }
            if self.addresses.len() >= ADDRESSES {
                return false;
            }
        }
        let bucket = self.addresses.entry(network).or_default();
        bucket.take(PER_ADDRESS, now)
    }
}

/// The network that one sender is assumed to control: an IPv4 address, or an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & (u128::MAX << 64)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(1000);

    #[test]
    fn an_address_has_a_burst_of_five_and_then_twenty_a_second() {
        let mut limiter = HandshakeLimiter::default();
        let mut admitted = |at: Duration| limiter.admit([192, 0, 2, 1].into(), at);
        assert_eq!((0..10).filter(|_| admitted(T0)).count(), 5);
        let later = (1..=1000).filter(|ms| admitted(T0 + Duration::from_millis(*ms)));
        assert_eq!(later.count(), 20);
    }

    #[test]
    fn each_ipv4_address_and_each_ipv6_network_has_tokens_of_its_own() {
        let mut limiter = HandshakeLimiter::default();
        let mut burst = |address: &str| {
            let address = address.parse().unwrap();
            (0..10).filter(|_| limiter.admit(address, T0)).count()
        };
        assert_eq!(burst("192.0.2.1"), 5);
        assert_eq!(burst("192.0.2.2"), 5);
        assert_eq!(burst("2001:db8::1"), 5);
        assert_eq!(burst("2001:db8::ffff:1"), 0);
        assert_eq!(burst("2001:db8:0:1::1"), 5);
    }

    #[test]
    fn at_the_bound_new_addresses_are_refused_until_known_ones_are_idle() {
        let mut limiter = HandshakeLimiter::default();
        for n in 0..ADDRESSES as u32 {
            assert!(limiter.admit(IpAddr::V4(n.into()), T0));
        }
        let new = [192, 0, 2, 1].into();
        assert!(!limiter.admit(new, T0));
        assert!(limiter.admit([0, 0, 0, 1].into(), T0), "a known one");
        assert!(limiter.admit(new, T0 + SECOND));
        assert!(limiter.addresses.len() < 10);
    }

    #[test]
    fn load_begins_above_the_limit_and_ends_with_the_second() {
        let mut limiter = HandshakeLimiter::default();
        for _ in 0..HANDSHAKES_PER_SECOND {
            assert!(!limiter.count(T0));
        }
        assert!(limiter.count(T0));
        assert!(!limiter.count(T0 + SECOND));
    }
}
