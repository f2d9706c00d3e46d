//! Limits answers to packets that belong to no connection: per second, and for each peer.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Resets, and ICMP errors and answers, a second.
const MOST_ANSWERS: u32 = 1000;
/// How many times as many as are left to others a peer may have.
const SHARE: u32 = 4;

/// Counts of the answers in this second.
#[derive(Debug)]
pub(super) struct Answers {
    begun: Instant,
    used: u32,
    of_peers: HashMap<u32, u32>,
}

impl Answers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            used: 0,
            of_peers: HashMap::new(),
        }
    }

    /// Counts an answer to a peer; whether it may go.
    pub(super) fn take(&mut self, peer: u32, now: Instant) -> bool {
        if now.saturating_duration_since(self.begun) >= Duration::from_secs(1) {
            (self.begun, self.used) = (now, 0);
            self.of_peers.clear();
        }
        let left = MOST_ANSWERS - self.used;
        let own = self.of_peers.entry(peer).or_default();
        let may_go = *own < SHARE * left;
        *own += u32::from(may_go);
        self.used += u32::from(may_go);
        may_go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_floods_leaves_answers_to_others() {
        let begun = Instant::now();
        let mut answers = Answers::new(begun);
        let mut count = |peer, now| (0..9_000).filter(|_| answers.take(peer, now)).count();
        assert_eq!([1, 2, 1].map(|peer| count(peer, begun)), [800, 160, 0]);
        assert_eq!((3..100).filter(|peer| count(*peer, begun) > 0).count(), 3);
        assert_eq!(count(1, begun + Duration::from_secs(1)), 800);
    }
}
