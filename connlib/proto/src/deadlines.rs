//! One heap of deadlines for all peers.
//!
//! The heap is lazy: a postponed deadline keeps its entry, which is corrected only when it comes up.
//! Traffic only postpones timers, so it does not touch the heap.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::timers::Timers;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Duration, usize)>>,
}

impl Deadlines {
    /// The earliest time at which [`Self::pop`] returns a peer.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Ensures that `peer` comes up no later than the first of its timers is due.
    pub(crate) fn arm(&mut self, peer: usize, timers: &mut Timers) {
        let Some(next) = timers.next() else { return };
        let is_covered = timers.armed.is_some_and(|armed| armed <= next);
        if !is_covered {
            timers.armed = Some(next);
            self.heap.push(Reverse((next, peer)));
        }
    }

    /// Takes an entry that is due at `now`; the caller arms the peer again.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<(Duration, usize)> {
        let Reverse((at, peer)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some((at, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(100);

    #[test]
    fn traffic_that_only_postpones_a_timer_leaves_the_heap_alone() {
        let mut deadlines = Deadlines::default();
        let mut timers = Timers::default();
        timers.set_persistent_keepalive(25, T0);
        timers.due(T0);
        for second in 0..20 {
            timers.authenticated_received(T0 + Duration::from_secs(second));
            deadlines.arm(7, &mut timers);
        }
        assert_eq!(deadlines.heap.len(), 1);
        let first = T0 + Duration::from_secs(25);
        assert_eq!(deadlines.pop(first), Some((first, 7)));
        timers.armed = None;
        deadlines.arm(7, &mut timers);
        assert_eq!(deadlines.next(), Some(T0 + Duration::from_secs(44)));
    }
}
