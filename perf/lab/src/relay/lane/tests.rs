use super::*;
use crate::relay::Direction;

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn without_impairments_everything_passes_at_once_and_in_order() {
    let mut bench = Bench::new(|_| {});
    assert_eq!(bench.pass(0..100), (0..100).collect::<Vec<_>>());
    assert_eq!(bench.lane.poll_timeout(), None);
    let tally = bench.lane.tally();
    assert_eq!((tally.received, tally.sent, tally.waiting), (100, 100, 0));
}

#[test]
fn drops_and_second_copies_are_counted() {
    let mut bench = Bench::new(|odds| (odds.drop, odds.duplicate) = (0.3, 0.3));
    let passed = bench.pass(0..255);
    let tally = bench.lane.tally();
    assert!(tally.dropped > 30 && tally.duplicated > 30, "{tally:?}");
    assert_eq!(tally.sent, 255 - tally.dropped + tally.duplicated);
    let repeated = passed.windows(2).filter(|two| two[0] == two[1]).count();
    assert_eq!(repeated as u64, tally.duplicated);
}

#[test]
fn a_datagram_held_back_is_overtaken_by_as_many_as_asked() {
    let mut bench = Bench::new(|odds| (odds.hold, odds.overtaken_by) = (1.0, 3..=3));
    assert!(bench.pass([7]).is_empty());
    bench.lane.impair(Impairments::default());
    assert_eq!(bench.pass([8, 9]), [8, 9]);
    assert_eq!(bench.pass([10, 11]), [10, 7, 11]);
    assert_eq!(bench.lane.tally().held, 1);
}

#[test]
fn datagrams_that_nothing_overtakes_go_after_a_silence() {
    let mut bench = Bench::new(|odds| (odds.hold, odds.overtaken_by) = (1.0, 10..=1_000));
    assert!(bench.pass([1, 2, 3]).is_empty());
    let due = bench.lane.poll_timeout().unwrap();
    assert_eq!(due, bench.now + SILENCE);
    bench.now = due;
    let mut released = bench.pass([]);
    released.sort_unstable();
    assert_eq!(released, [1, 2, 3]);
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

    /// Which datagrams of one byte come out while these go in.
    fn pass(&mut self, datagrams: impl IntoIterator<Item = u8>) -> Vec<u8> {
        for byte in datagrams {
            self.lane.handle_datagram(&[byte], self.now);
        }
        std::iter::from_fn(|| self.lane.poll_datagram(self.now))
            .map(|datagram| datagram.first().copied().unwrap_or_default())
            .collect()
    }
}
