//! A sender and a model of the other end, on paths that lose, double and reorder segments; time is simulated.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

/// Segments of a transfer.
const SEGMENTS: u32 = 400;
/// Bytes that the other end takes.
const ROOM: u32 = 500_000;
/// Longest time that a transfer may take, in microseconds.
const LIMIT: i64 = 120_000_000;

/// Properties of a path and of the other end.
#[derive(Clone, Copy, Debug)]
struct Path {
    mss: u32,
    round_trip: i64,
    /// Packets in a thousand that are lost, doubled, and late.
    lost: u32,
    doubled: u32,
    late: u32,
    /// How late these are, in microseconds at most.
    by: i64,
    /// SACK blocks in an acknowledgement.
    blocks: usize,
    /// How long an acknowledgement of one segment waits.
    delay: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Segment(u32, u32),
    Acknowledgement(u32, Vec<(u32, u32)>),
    Delayed(u32),
}

struct World {
    path: Path,
    rng: StdRng,
    now: i64,
    serial: u64,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    sending: Sending,
    /// What the other end has, the last one to grow first, and all before this byte.
    ranges: Vec<(u32, u32)>,
    received: u32,
    /// Bytes that it has not acknowledged yet.
    owed: u32,
    resent: u32,
    lost: u32,
}

impl World {
    fn new(path: Path, seed: u64) -> Self {
        Self {
            path,
            rng: StdRng::seed_from_u64(seed),
            now: 0,
            serial: 0,
            events: BinaryHeap::new(),
            sending: Sending::new(path.mss, FIRST, 0, Some(path.round_trip)),
            ranges: Vec::new(),
            received: 0,
            owed: 0,
            resent: 0,
            lost: 0,
        }
    }

    /// Sends everything.
    fn run(&mut self) {
        self.send();
        while self.acknowledged() < self.total() {
            let event = self.events.peek().map(|it| it.0.0);
            let timer = self.sending.deadline();
            let next = event.into_iter().chain(timer).min();
            self.now = next.expect("nothing would ever happen");
            assert!(self.now < LIMIT, "{:?}: {:?}", self.path, self.sending);
            if event == Some(self.now) {
                let Reverse((_, _, event)) = self.events.pop().unwrap();
                self.handle(event);
            } else {
                assert!(self.sending.expire(self.now));
            }
            self.send();
        }
    }

    fn total(&self) -> u32 {
        SEGMENTS * self.path.mss
    }

    fn acknowledged(&self) -> u32 {
        self.sending.first().wrapping_sub(FIRST)
    }

    fn send(&mut self) {
        while self.sending.wants_to_resend() {
            let (mut from, end) = (self.sending.first(), self.sending.next());
            while let Some((start, behind)) = self.sending.next_piece(self.now, from, end) {
                self.resent += behind.wrapping_sub(start);
                self.transmit(start.wrapping_sub(FIRST), behind.wrapping_sub(FIRST));
                from = behind;
            }
        }
        let window = self.sending.window().min(ROOM);
        let limit = (self.acknowledged() + window).min(self.total());
        let next = self.sending.next().wrapping_sub(FIRST);
        if next < limit {
            self.transmit(next, limit);
            self.sending.sent(self.now, FIRST.wrapping_add(limit));
        }
    }

    fn transmit(&mut self, mut from: u32, end: u32) {
        while from < end {
            let to = end.min(from + self.path.mss);
            if !self.pass(Event::Segment(from, to)) {
                self.lost += to - from;
            }
            from = to;
        }
    }

    /// Carries a packet; whether it is not lost.
    fn pass(&mut self, event: Event) -> bool {
        let Path {
            lost,
            doubled,
            late,
            by,
            ..
        } = self.path;
        let fate = self.rng.random_range(0..1_000);
        if fate < lost {
            return false;
        }
        let at = self.now + self.path.round_trip / 2;
        let is_late = fate < lost + late;
        let later = if is_late {
            self.rng.random_range(0..=by)
        } else {
            0
        };
        if (lost + late..lost + late + doubled).contains(&fate) {
            self.push(at, event.clone());
        }
        self.push(at + later, event);
        true
    }

    fn push(&mut self, at: i64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Segment(from, to) => self.receive(from, to),
            Event::Delayed(received) => {
                if self.owed > 0 && received == self.received {
                    self.acknowledge();
                }
            }
            Event::Acknowledgement(number, blocks) => {
                let absolute = |it: u32| FIRST.wrapping_add(it);
                let blocks: Vec<_> = blocks
                    .iter()
                    .map(|it| (absolute(it.0), absolute(it.1)))
                    .collect();
                let acknowledgement = Acknowledgement {
                    number: absolute(number),
                    blocks: &blocks,
                    is_pure: true,
                };
                self.sending.acknowledge(self.now, acknowledgement);
            }
        }
    }

    fn receive(&mut self, from: u32, to: u32) {
        let before = self.received;
        let (mut from, mut to) = (from.max(before), to);
        if from < to {
            let touches = |(start, end): &(u32, u32)| *start <= to && from <= *end;
            let joined: Vec<_> = self.ranges.iter().copied().filter(touches).collect();
            self.ranges.retain(|it| !joined.contains(it));
            for (start, end) in joined {
                (from, to) = (from.min(start), to.max(end));
            }
            match from == before {
                true => self.received = to,
                false => self.ranges.insert(0, (from, to)),
            }
        }
        self.owed += self.received - before;
        let is_ordinary = self.received > before && self.ranges.is_empty();
        if !is_ordinary || self.owed >= 2 * self.path.mss {
            return self.acknowledge();
        }
        self.push(self.now + self.path.delay, Event::Delayed(self.received));
    }

    fn acknowledge(&mut self) {
        self.owed = 0;
        let blocks = self.ranges.iter().take(self.path.blocks).copied();
        let event = Event::Acknowledgement(self.received, blocks.collect());
        self.pass(event);
    }
}

#[test]
fn everything_arrives_in_good_time_on_paths_of_all_kinds() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut any = |of: &[u32]| of[rng.random_range(0..of.len())];
        let path = Path {
            mss: any(&[88, 536, 1_380]),
            round_trip: any(&[200, 20_000, 200_000]).into(),
            lost: any(&[0, 1, 10, 50]),
            doubled: any(&[0, 20]),
            late: any(&[0, 20, 100]),
            by: any(&[1_000, 10_000]).into(),
            blocks: any(&[0, 1, 3]) as usize,
            delay: any(&[1_000, 40_000, 200_000]).into(),
        };
        let mut world = World::new(path, seed);
        world.run();
        // What goes again without need is what a reordering or an early timeout costs.
        let most = 4 * world.lost + world.total() / 4 * (1 + path.late / 20);
        assert!(
            world.resent <= most,
            "{} {} {path:?}",
            world.resent,
            world.lost
        );
    }
}
