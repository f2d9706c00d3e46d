//! One direction of a relay: the datagrams that wait in it, and when they leave.

use std::time::Instant;

use super::census::{Census, Registrar};
use super::fates::{Fates, Passage};

/// Maximum number of waiting datagrams per direction; further ones are dropped and counted.
pub(super) const QUEUE: usize = 4_096;

/// Counts of the datagrams of a direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Datagrams that arrived.
    pub(crate) received: u64,
    /// Datagrams among these that were lost as the fates determined.
    pub(crate) dropped: u64,
    /// Second copies.
    pub(crate) duplicated: u64,
    /// Copies held back for others to overtake.
    pub(crate) held: u64,
    /// Copies lost because 4,096 were already waiting.
    pub(crate) overflowed: u64,
    /// Waiting copies.
    pub(crate) waiting: u64,
    /// Copies sent on.
    pub(crate) sent: u64,
    /// The same by class.
    pub(crate) census: Census,
}

/// One direction. Call [`Self::handle_datagram`] for each arriving datagram, then [`Self::poll_datagram`]
/// until there is none; again at [`Self::poll_timeout`].
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) fates: Fates,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
    tally: Tally,
    registrar: Registrar,
}

#[derive(Debug)]
struct Waiting {
    passage: Passage,
    due: Instant,
    /// How many datagrams must have arrived, unless it is released before.
    after: u64,
}

impl Lane {
    pub(super) fn new(fates: Fates) -> Self {
        Self {
            fates,
            waiting: Vec::new(),
            tally: Tally::default(),
            registrar: Registrar::default(),
        }
    }

    /// Handles a datagram that has arrived.
    pub(super) fn handle_datagram(&mut self, datagram: &[u8], now: Instant) {
        let passages = self.fates.next(datagram);
        self.tally.received += 1;
        self.tally.dropped += u64::from(passages.is_empty());
        self.tally.duplicated += passages.len().saturating_sub(1) as u64;
        for passage in passages {
            if self.waiting.len() == QUEUE {
                self.tally.overflowed += 1;
                continue;
            }
            self.tally.held += u64::from(passage.overtaken_by > 0);
            self.waiting.push(Waiting {
                due: now + passage.delay,
                after: self.tally.received + passage.overtaken_by,
                passage,
            });
        }
    }

    /// The next datagram to send on, if one is due at `now`.
    pub(super) fn poll_datagram(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut waiting = self.waiting.iter();
        let next = waiting.position(|it| self.due(it).is_some_and(|due| due <= now))?;
        let Passage {
            datagram,
            is_altered,
            ..
        } = self.waiting.remove(next).passage;
        self.tally.sent += 1;
        self.registrar.count(&datagram, is_altered);
        Some(datagram)
    }

    /// Returns when there is something to send on, if nothing else arrives.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting.iter();
        waiting.filter_map(|waiting| self.due(waiting)).min()
    }

    /// Sends on what is held back: nothing else will overtake it.
    pub(super) fn release_held(&mut self) {
        for waiting in &mut self.waiting {
            waiting.after = 0;
        }
    }

    /// When `waiting` leaves, if nothing else arrives.
    fn due(&self, waiting: &Waiting) -> Option<Instant> {
        let is_overtaken = waiting.after <= self.tally.received;
        is_overtaken.then_some(waiting.due)
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            waiting: self.waiting.len() as u64,
            census: self.registrar.census.clone(),
            ..self.tally.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Direction, Impairments};
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn drops_and_second_copies_are_counted_and_the_rest_passes_in_order() {
        let mut bench = Bench::new(|odds| (odds.drop, odds.duplicate) = (0.3, 0.3));
        let passed = bench.pass(0..255);
        let tally = bench.lane.tally();
        assert!(tally.dropped > 30 && tally.duplicated > 30, "{tally:?}");
        assert_eq!(tally.sent, 255 - tally.dropped + tally.duplicated);
        let repeated = passed.windows(2).filter(|two| two[0] == two[1]).count();
        assert!(repeated as u64 == tally.duplicated && passed.is_sorted());
        assert_eq!(bench.lane.poll_timeout(), None);
    }

    #[test]
    fn a_datagram_held_back_is_overtaken_by_as_many_as_asked_or_goes_when_released() {
        let mut bench = Bench::new(|odds| (odds.hold, odds.overtaken_by) = (1.0, 3..=3));
        assert!(bench.pass([7]).is_empty());
        bench.lane.fates.impairments = Impairments::default();
        assert_eq!(bench.pass([8, 9]), [8, 9]);
        bench.now += 10_000 * MILLISECOND;
        assert_eq!(bench.lane.poll_timeout(), None);
        assert_eq!(bench.pass([10]), [7, 10]);
        let mut bench = Bench::new(|odds| (odds.hold, odds.overtaken_by) = (1.0, 10..=1_000));
        assert!(bench.pass([1, 2, 3]).is_empty());
        assert_eq!(bench.lane.tally().held, 3);
        bench.lane.release_held();
        assert_eq!(bench.lane.poll_timeout(), Some(bench.now));
        assert_eq!(bench.pass([]), [1, 2, 3]);
    }

    #[test]
    fn delayed_datagrams_go_when_they_are_due() {
        let mut bench = Bench::new(|odds| odds.delay = 10 * MILLISECOND);
        let end = bench.now + 10 * MILLISECOND;
        let mut passed = bench.pass(0..50);
        while let Some(due) = bench.lane.poll_timeout() {
            assert!(due > bench.now && due <= end);
            bench.now = due;
            passed.extend(bench.pass([]));
        }
        assert!(!passed.is_sorted(), "in another order");
        passed.sort_unstable();
        assert_eq!(passed, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_waits_than_the_bound_allows() {
        let mut bench = Bench::new(|odds| (odds.corrupt, odds.delay) = (1.0, 10 * MILLISECOND));
        assert!(bench.pass([0; QUEUE + 100]).len() < QUEUE);
        let tally = bench.lane.tally();
        assert_eq!(tally.waiting + tally.sent, QUEUE as u64);
        assert_eq!(tally.overflowed, 100);
        bench.now += 10 * MILLISECOND;
        bench.pass([]);
        assert_eq!(bench.lane.tally().census.altered, QUEUE as u64);
    }

    struct Bench {
        lane: Lane,
        now: Instant,
    }

    impl Bench {
        fn new(impair: impl FnOnce(&mut Impairments)) -> Self {
            let mut impairments = Impairments::default();
            impair(&mut impairments);
            Self {
                lane: Lane::new(Fates::new(5, Direction::ToRight, impairments)),
                now: Instant::now(),
            }
        }

        /// The datagrams of one byte that come out while these go in.
        fn pass(&mut self, datagrams: impl IntoIterator<Item = u8>) -> Vec<u8> {
            for byte in datagrams {
                self.lane.handle_datagram(&[byte], self.now);
            }
            std::iter::from_fn(|| self.lane.poll_datagram(self.now))
                .map(|datagram| datagram.first().copied().unwrap_or_default())
                .collect()
        }
    }
}
