//! Connections that have ended on both sides: their other ends may not know it yet.

use std::collections::{HashMap, VecDeque};

use smoltcp::time::Instant;

use convoy_packet::segment::{Plain, Tuple};

/// How long an end is answered, in microseconds: a few times a round trip and a retransmission.
const LIFE: i64 = 10_000_000;
/// With more, the oldest are forgotten; their other ends are reset if they ask.
const MOST: usize = 4096;

/// The last acknowledgement of each.
#[derive(Debug, Default)]
pub(super) struct TimeWait {
    last: HashMap<Tuple, (Plain<'static>, i64)>,
    order: VecDeque<(i64, Tuple)>,
}

impl TimeWait {
    pub(super) fn add(&mut self, tuple: Tuple, last: Plain<'static>, now: Instant) {
        let now = now.total_micros();
        let is_old = |(ends, _): &(i64, Tuple)| *ends <= now;
        while self.order.front().is_some_and(is_old) || self.order.len() >= MOST {
            let Some((ends, tuple)) = self.order.pop_front() else {
                break;
            };
            if self.last.get(&tuple).is_some_and(|(_, at)| *at == ends) {
                self.last.remove(&tuple);
            }
        }
        self.last.insert(tuple, (last, now + LIFE));
        self.order.push_back((now + LIFE, tuple));
    }

    pub(super) fn has(&self, tuple: &Tuple) -> bool {
        self.last.contains_key(tuple)
    }

    /// Returns the acknowledgement to answer with.
    pub(super) fn find(&self, tuple: &Tuple) -> Option<Plain<'static>> {
        self.last.get(tuple).map(|(last, _)| *last)
    }

    /// The same ends begin another connection.
    pub(super) fn forget(&mut self, tuple: &Tuple) {
        self.last.remove(tuple);
    }
}
