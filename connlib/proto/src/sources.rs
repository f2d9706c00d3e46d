//! What handshake messages may cost while the node is under load (WireGuard paper §5.3).
//!
//! boringtun asks an address for the proof that it is the sender's own (a cookie), but does not
//! count: neither what it answers and checks before there is that proof, nor what comes behind it.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use crate::{noise::HANDSHAKES_PER_SECOND, places::Places};

/// Handshake messages a second from one address; the reference allows as many.
const PER_SECOND: u32 = 20;
/// Of those, how many may come at once.
const BURST: u32 = 5;
/// Addresses that are remembered.
const SOURCES: usize = 8192;

/// Cookie replies a second from each of 1,024 places: about 6 µs each.
const COOKIES_PER_SECOND: u32 = 10;
/// Claimed proofs that are checked a second, likewise: about 4 µs each if they are wrong.
const CLAIMS_PER_SECOND: u32 = 20;

const INTERVAL: Duration = Duration::from_millis(1000 / PER_SECOND as u64);
const SECOND: Duration = Duration::from_secs(1);

/// Counts handshake messages whose MAC1 is right, by address.
#[derive(Debug)]
pub(crate) struct Sources {
    second: Duration,
    seen: u64,
    /// When an address will have used up nothing of its share any more. An attacker chooses the
    /// keys: the hash is not a fast one.
    idle_at: HashMap<IpAddr, Duration>,
    cookies: Places,
    claims: Places,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            second: Duration::ZERO,
            seen: 0,
            idle_at: HashMap::new(),
            cookies: Places::new(COOKIES_PER_SECOND),
            claims: Places::new(CLAIMS_PER_SECOND),
        }
    }
}

impl Sources {
    /// Counts a message. Returns whether there were so many lately that each must earn its place.
    pub(crate) fn count(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.second) >= SECOND {
            if self.seen <= HANDSHAKES_PER_SECOND {
                self.idle_at.clear();
            }
            self.second = now;
            self.seen = 0;
        }
        self.seen += 1;
        self.seen > HANDSHAKES_PER_SECOND
    }

    /// Whether a cookie reply may go to `address`, which has proved nothing.
    pub(crate) fn may_be_asked(&mut self, address: IpAddr, now: Duration) -> bool {
        self.cookies.admit(address, now)
    }

    /// Whether what `address` presents as its proof is to be looked at.
    pub(crate) fn may_claim(&mut self, address: IpAddr, now: Duration) -> bool {
        self.claims.admit(address, now)
    }

    /// Takes one message from the share of `address`, which is the sender's own, or says that there
    /// is nothing left of it.
    pub(crate) fn admit(&mut self, address: IpAddr, now: Duration) -> bool {
        let source = source(address);
        if self.idle_at.len() >= SOURCES && !self.idle_at.contains_key(&source) {
            self.idle_at.retain(|_, idle_at| *idle_at > now);
            if self.idle_at.len() >= SOURCES {
                return false;
            }
        }
        let idle_at = self.idle_at.entry(source).or_default();
        take(idle_at, INTERVAL, BURST, now)
    }
}

/// Takes one from a share of one each `interval`, of which `burst` may come at once.
pub(crate) fn take(idle_at: &mut Duration, interval: Duration, burst: u32, now: Duration) -> bool {
    let next = (*idle_at).max(now) + interval;
    let is_admitted = next <= now + interval * burst;
    if is_admitted {
        *idle_at = next;
    }
    is_admitted
}

/// Who holds one IPv6 address holds its /64.
pub(crate) fn source(address: IpAddr) -> IpAddr {
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
        let mut sources = Sources::default();
        let mut admitted = |at: Duration| sources.admit([192, 0, 2, 1].into(), at);
        assert_eq!((0..10).filter(|_| admitted(T0)).count(), 5);
        let later = (1..=1000).filter(|ms| admitted(T0 + Duration::from_millis(*ms)));
        assert_eq!(later.count(), 20);
    }

    #[test]
    fn another_address_has_its_own_share_but_not_another_one_of_the_same_network() {
        let mut sources = Sources::default();
        let mut burst = |address: &str| {
            let address = address.parse().unwrap();
            (0..10).filter(|_| sources.admit(address, T0)).count()
        };
        assert_eq!(burst("192.0.2.1"), 5);
        assert_eq!(burst("192.0.2.2"), 5);
        assert_eq!(burst("2001:db8::1"), 5);
        assert_eq!(burst("2001:db8::ffff:1"), 0);
        assert_eq!(burst("2001:db8:0:1::1"), 5);
    }

    #[test]
    fn more_addresses_than_are_remembered_are_refused_until_some_are_idle() {
        let mut sources = Sources::default();
        for n in 0..SOURCES as u32 {
            assert!(sources.admit(IpAddr::V4(n.into()), T0));
        }
        let new = [192, 0, 2, 1].into();
        assert!(!sources.admit(new, T0));
        assert!(sources.admit([0, 0, 0, 1].into(), T0), "a known one");
        assert!(sources.admit(new, T0 + SECOND));
        assert!(sources.idle_at.len() < 10);
    }

    #[test]
    fn load_is_more_than_so_many_in_one_second() {
        let mut sources = Sources::default();
        for _ in 0..HANDSHAKES_PER_SECOND {
            assert!(!sources.count(T0));
        }
        assert!(sources.count(T0));
        assert!(!sources.count(T0 + SECOND));
    }
}
