//! MTUs of paths to hosts behind peers, for datagrams over IPv6: no router fragments those (RFC 8201).

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use smoltcp::time::{Duration, Instant};

/// Hosts whose path is remembered; beyond these, the oldest is forgotten.
const MOST_PATHS: usize = 256;
/// Life of what a router has said (RFC 8201 §4: ten minutes are recommended).
const LIFE: Duration = Duration::from_secs(600);
/// Smallest MTU of a link (RFC 8200 §5).
const SMALLEST: usize = 1_280;

/// Hosts to which the path is narrower than the tunnel.
#[derive(Debug, Default)]
pub(super) struct PathMtus {
    paths: Mutex<HashMap<Ipv6Addr, Path>>,
    /// Saves the lock, as long as no router has said anything.
    has_any: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    mtu: usize,
    learnt: Instant,
}

impl PathMtus {
    /// Returns whether a router has reported a narrow path.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    /// Returns the longest packet in bytes that reaches a host, at most `mtu`. Reads the clock only once a router has
    /// reported a narrow path.
    pub(super) fn to(&self, host: IpAddr, mtu: usize, now: impl FnOnce() -> Instant) -> usize {
        let IpAddr::V6(host) = host else {
            return mtu;
        };
        if !self.has_any() {
            return mtu;
        }
        let path = self.paths().get(&host).copied();
        let path = path.filter(|path| now() < path.learnt + LIFE);
        path.map_or(mtu, |path| path.mtu.min(mtu))
    }

    /// Notes that a link on the path to a host takes packets of `mtu` bytes at most; returns whether that is news.
    pub(super) fn learn(&self, host: Ipv6Addr, mtu: usize, now: Instant) -> bool {
        let mtu = mtu.max(SMALLEST);
        let mut paths = self.paths();
        let known = paths.get(&host).filter(|it| now < it.learnt + LIFE);
        if known.is_some_and(|path| path.mtu <= mtu) {
            return false;
        }
        if paths.len() >= MOST_PATHS && !paths.contains_key(&host) {
            let oldest = paths.iter().min_by_key(|(_, path)| path.learnt);
            let oldest = oldest.map(|(host, _)| *host);
            oldest.map(|host| paths.remove(&host));
        }
        paths.insert(host, Path { mtu, learnt: now });
        self.has_any.store(true, Ordering::Relaxed);
        true
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<Ipv6Addr, Path>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number)
    }

    #[test]
    fn a_path_is_narrow_for_ten_minutes_and_never_below_what_each_link_must_take() {
        let (paths, now) = (PathMtus::default(), Instant::from_secs(1));
        let to = |number, now| paths.to(host(number).into(), 1_420, || now);
        assert_eq!(to(1, now), 1_420);
        assert!(paths.learn(host(1), 1_300, now));
        assert!(!paths.learn(host(1), 1_400, now));
        assert!(paths.learn(host(2), 68, now));
        assert_eq!([to(1, now), to(2, now), to(3, now)], [1_300, 1_280, 1_420]);
        assert_eq!(paths.to([10, 9, 0, 1].into(), 1_420, || now), 1_420);
        assert!(paths.learn(host(4), 9_000, now));
        assert_eq!(to(4, now), 1_420);
        let later = now + LIFE;
        assert_eq!(to(1, later), 1_420);
        assert!(paths.learn(host(1), 1_400, later));
        assert_eq!(to(1, later), 1_400);
    }

    #[test]
    fn the_oldest_path_gives_way() {
        let paths = PathMtus::default();
        for number in 0..=MOST_PATHS as u16 {
            let now = Instant::from_secs(number);
            assert!(paths.learn(host(number), 1_300, now));
        }
        let to = |number| paths.to(host(number).into(), 1_420, || Instant::from_secs(300));
        assert_eq!([to(0), to(1), to(MOST_PATHS as u16)], [1_420, 1_300, 1_300]);
        assert_eq!(paths.paths().len(), MOST_PATHS);
    }
}
