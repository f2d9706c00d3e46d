use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const FIRST: [u8; 4] = [10, 8, 0, 1];
const SECOND: [u8; 4] = [10, 8, 0, 9];
const MTU: u32 = 1420;
const FLOOR: u32 = 1280;
const RTT: Duration = Duration::from_millis(20);

/// A path's treatment of echo requests.
struct Path {
    /// The hosts that answer.
    answering: Vec<IpAddr>,
    /// The largest packet that gets through, in bytes.
    carries: u32,
    rtt: Duration,
    /// Whether the path loses this echo request, the nth.
    loses: Loses,
}

type Loses = Box<dyn FnMut(usize, &Transmit) -> bool>;

/// How a probe went.
#[derive(Debug)]
struct Run {
    outcome: Outcome,
    sent: Vec<Transmit>,
    took: Duration,
}

#[test]
fn a_path_that_carries_the_mtu_is_known_after_one_round_trip() {
    let run = Path::new(MTU).run(&[FIRST, SECOND], MTU, FLOOR);
    let target = FIRST.into();
    assert_eq!(run.outcome, Outcome::Fits { target });
    let sizes: Vec<_> = run.sent.iter().map(|it| it.size).collect();
    assert_eq!(sizes, [SMALL, MTU]);
    assert_eq!(run.took, RTT);
}

#[test]
fn the_largest_size_that_is_answered_is_found_for_every_path() {
    let target = FIRST.into();
    for (mtu, floor) in [(1420, 1280), (1408, 1280), (1420, 576), (577, 576)] {
        for carries in floor..mtu {
            let run = Path::new(carries).run(&[FIRST], mtu, floor);
            let largest = carries / STEP * STEP;
            let expected = Outcome::Narrow { target, largest };
            assert_eq!(run.outcome, expected, "{mtu} {carries}");
        }
    }
    let run = Path::new(9_000).run(&[FIRST], 65_535, 576);
    let largest = 8_992;
    assert_eq!(run.outcome, Outcome::Narrow { target, largest });
    eprintln!("an MTU of 65,535 bytes takes {} echoes", run.sent.len());
}

#[test]
fn a_path_that_does_not_even_carry_the_smallest_mtu_gets_no_limit() {
    let run = Path::new(FLOOR - 1).run(&[FIRST], MTU, FLOOR);
    let target = FIRST.into();
    assert_eq!(run.outcome, Outcome::TooNarrow { target });
    assert!(
        run.sent
            .iter()
            .all(|it| it.size == SMALL || it.size >= FLOOR)
    );
}

#[test]
fn a_size_is_given_up_after_three_losses_and_tried_again_in_the_end() {
    let run = Path::new(1_328).run(&[FIRST], MTU, FLOOR);
    let mut sizes: Vec<_> = run.sent.iter().map(|it| it.size).collect();
    sizes.retain(|size| *size != SMALL);
    let expected = [
        1420, 1420, 1420, 1344, 1344, 1344, 1296, 1312, 1328, 1344, 1344, 1344,
    ];
    assert_eq!(sizes, expected);
}

#[test]
fn a_silent_target_gives_way_to_the_next_one() {
    let mut path = Path::new(MTU);
    path.answering = vec![SECOND.into()];
    let run = path.run(&[FIRST, SECOND], MTU, FLOOR);
    let target = SECOND.into();
    assert_eq!(run.outcome, Outcome::Fits { target });
    assert_eq!(run.took, TRIES * LONGEST_PATIENCE + RTT);
}

#[test]
fn where_nobody_answers_nothing_is_known() {
    let mut path = Path::new(MTU);
    path.answering.clear();
    let run = path.run(&[FIRST, SECOND], MTU, FLOOR);
    assert_eq!(run.outcome, Outcome::Unknown);
    assert_eq!(run.took, 2 * TRIES * LONGEST_PATIENCE);
}

#[test]
fn silence_in_the_midst_of_a_search_changes_nothing() {
    for silent_from in 1..23 {
        let mut path = Path::new(1_328);
        path.loses = Box::new(move |nth, _| nth >= silent_from);
        let run = path.run(&[FIRST, SECOND], MTU, FLOOR);
        assert_eq!(run.outcome, Outcome::Unknown, "{silent_from}");
        assert!(run.sent.iter().all(|it| it.to == IpAddr::from(FIRST)));
    }
}

#[test]
fn two_losses_of_large_packets_are_chance() {
    let mut path = Path::new(MTU);
    path.loses = Box::new(|nth, sent| sent.size == MTU && nth < 4);
    let target = FIRST.into();
    assert_eq!(
        path.run(&[FIRST], MTU, FLOOR).outcome,
        Outcome::Fits { target }
    );
}

#[test]
fn a_size_that_was_lost_by_chance_is_refuted_in_the_end() {
    let mut path = Path::new(1_376);
    let mut losses = 0;
    path.loses = Box::new(move |_, sent| {
        let is_lost = sent.size == 1_344 && losses < TRIES;
        losses += u32::from(is_lost);
        is_lost
    });
    let (target, largest) = (FIRST.into(), 1_376);
    assert_eq!(
        path.run(&[FIRST], MTU, FLOOR).outcome,
        Outcome::Narrow { target, largest }
    );
}

#[test]
fn an_answer_counts_even_if_it_is_late() {
    let start = Instant::now();
    let mut probe = Probe::new(vec![FIRST.into()], MTU, FLOOR, start).unwrap();
    let mut now = start;
    for round in 0..TRIES as u16 {
        probe.handle_answer(FIRST.into(), 2 * round, now + RTT);
        now = probe.poll_timeout().unwrap();
        probe.handle_timeout(now);
    }
    assert_eq!(probe.lost, Some(MTU));
    probe.handle_answer(FIRST.into(), 1, now);
    let target = FIRST.into();
    assert_eq!(probe.poll_outcome(), Some(Outcome::Fits { target }));
    assert_eq!(probe.poll_timeout(), None);
}

#[test]
fn where_every_answer_is_late_the_probe_ends_without_a_change() {
    let mut path = Path::new(FLOOR);
    path.rtt = LONGEST_PATIENCE * 3 / 2;
    let run = path.run(&[FIRST], MTU, FLOOR);
    assert_eq!(run.outcome, Outcome::Unknown);
    assert_eq!(run.sent.len(), MAX_ECHOES);
}

#[test]
fn answers_of_others_and_to_nothing_do_not_count() {
    let now = Instant::now();
    let mut probe = Probe::new(vec![FIRST.into()], MTU, FLOOR, now).unwrap();
    probe.handle_answer(SECOND.into(), 1, now);
    for sequence in [2, u16::MAX] {
        probe.handle_answer(FIRST.into(), sequence, now);
    }
    assert_eq!(probe.poll_outcome(), None);
    assert_eq!(probe.longest_rtt, None);
}

#[test]
fn the_time_for_an_answer_follows_the_round_trip_within_limits() {
    for (rtt, patience) in [(1, 200), (20, 200), (100, 400), (500, 1_000)] {
        let start = Instant::now();
        let mut probe = Probe::new(vec![FIRST.into()], MTU, FLOOR, start).unwrap();
        let after = |probe: &Probe| probe.poll_timeout().unwrap() - start;
        assert_eq!(after(&probe), LONGEST_PATIENCE);
        probe.handle_answer(FIRST.into(), 0, start + Duration::from_millis(rtt));
        assert_eq!(after(&probe), Duration::from_millis(patience));
    }
}

#[test]
fn a_target_that_cannot_be_sent_to_is_left_at_once() {
    let now = Instant::now();
    let targets = vec![FIRST.into(), SECOND.into()];
    let mut probe = Probe::new(targets, MTU, FLOOR, now).unwrap();
    probe.handle_refused(now);
    let next = probe.poll_transmit().unwrap();
    assert_eq!(next.to, IpAddr::from(SECOND));
    probe.handle_refused(now);
    assert_eq!(probe.poll_outcome(), Some(Outcome::Unknown));
}

#[test]
fn there_is_nothing_to_probe_without_targets_or_below_the_smallest_mtu() {
    let now = Instant::now();
    assert!(Probe::new(Vec::new(), MTU, FLOOR, now).is_none());
    assert!(Probe::new(vec![FIRST.into()], FLOOR, FLOOR, now).is_none());
    assert!(Probe::new(vec![FIRST.into()], FLOOR + 1, FLOOR, now).is_some());
}

/// However many packets a path loses by chance, a probe ends, and its limit is a size that got through.
#[test]
fn chance_never_leads_to_a_limit_that_does_not_work() {
    let mut found = [0; 4];
    for seed in 0..2_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let carries = random.random_range(1_200..1_500);
        let percent = random.random_range(0..80);
        let mut path = Path::new(carries);
        path.loses = Box::new(move |_, _| random.random_range(0..100) < percent);
        let run = path.run(&[FIRST, SECOND], MTU, FLOOR);
        assert!(run.sent.len() <= MAX_ECHOES);
        match run.outcome {
            Outcome::Fits { .. } => {
                assert!(carries >= MTU, "{seed}");
                found[0] += 1;
            }
            Outcome::Narrow { largest, .. } => {
                assert!((FLOOR..=carries).contains(&largest), "{seed}");
                found[1] += 1;
            }
            Outcome::TooNarrow { .. } => found[2] += 1,
            Outcome::Unknown => found[3] += 1,
        }
    }
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
}

impl Path {
    fn new(carries: u32) -> Self {
        Self {
            answering: vec![FIRST.into(), SECOND.into()],
            carries,
            rtt: RTT,
            loses: Box::new(|_, _| false),
        }
    }

    fn run(&mut self, targets: &[[u8; 4]], mtu: u32, floor: u32) -> Run {
        let targets = targets.iter().map(|it| IpAddr::from(*it)).collect();
        let start = Instant::now();
        let mut probe = Probe::new(targets, mtu, floor, start).unwrap();
        let mut now = start;
        let mut sent = Vec::new();
        // In the order of their arrival.
        let mut answers = VecDeque::new();
        loop {
            while let Some(transmit) = probe.poll_transmit() {
                let is_lost = (self.loses)(sent.len(), &transmit);
                let fits = transmit.size <= self.carries;
                if fits && !is_lost && self.answering.contains(&transmit.to) {
                    answers.push_back((now + self.rtt, transmit));
                }
                sent.push(transmit);
            }
            if let Some(outcome) = probe.poll_outcome() {
                let took = now - start;
                return Run {
                    outcome,
                    sent,
                    took,
                };
            }
            let due = probe.poll_timeout().unwrap();
            match answers.pop_front_if(|(at, _)| *at <= due) {
                Some((at, transmit)) => {
                    now = at;
                    probe.handle_answer(transmit.to, transmit.sequence, now);
                }
                None => {
                    now = due;
                    probe.handle_timeout(now);
                }
            }
        }
    }
}
