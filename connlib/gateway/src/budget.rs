//! A rate limiter for the resets and ICMP errors that peers are sent.

use std::time::{Duration, Instant};

use convoy_network::shares::{Limits, Share, Shares};

/// In a second, to all peers.
const MOST: u32 = 1_000;

/// Divides the errors of each second among the peers, so that each hears of its own.
#[derive(Debug)]
pub(super) struct Budget {
    shares: Shares,
    second: Instant,
    spent: Vec<Share>,
}

impl Budget {
    pub(super) fn new(peers: u32, now: Instant) -> Self {
        Self {
            shares: Shares::new(Limits::of(MOST, peers)),
            second: now,
            spent: Vec::new(),
        }
    }

    /// Returns whether a peer may be sent one more, which it then counts.
    pub(super) fn spend(&mut self, peer: u32, now: Instant) -> bool {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.spent.clear();
        }
        let share = self.shares.take(peer);
        share.map(|it| self.spent.push(it)).is_ok()
    }
}
