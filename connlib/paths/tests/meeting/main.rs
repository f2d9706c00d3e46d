//! Two agents meet through NATs, on a network that loses, doubles and delays.

#![allow(unreachable_pub, reason = "each file of the test uses the others")]

mod families;
mod net;
mod relay;
mod relayed;
mod world;

use std::{net::SocketAddr, time::Duration};

use convoy_paths::WhyNotDirect;
use convoy_types::CandidateKind;
use net::{
    Dependence::{self, Address, None as Independent, Port},
    INTERNET, Net,
};
use world::{FAIR, FOUL, Weather, World, candidate};

const SECOND: Duration = Duration::from_secs(1);
const HOME: (Dependence, Dependence) = (Independent, Port);
const FULL_CONE: (Dependence, Dependence) = (Independent, Independent);
const RESTRICTED: (Dependence, Dependence) = (Independent, Address);
const HARD: (Dependence, Dependence) = (Port, Port);

type Kinds = (Dependence, Dependence);

/// Each end behind a NAT of its own, or at the internet.
fn apart(a: Option<Kinds>, b: Option<Kinds>) -> Net {
    let mut net = Net::default();
    for (n, kinds) in [a, b].into_iter().enumerate() {
        let n = n as u8;
        let address = match kinds {
            Some(_) => ([192, 168, 1 + n, 2], 51820),
            None => ([203, 0, 113, 10 + n], 51820),
        };
        let network = usize::from(n) + 1;
        let at = if kinds.is_some() { network } else { INTERNET };
        net.machines.push((at, address.into()));
        if let Some(kinds) = kinds {
            net.add_nat((network, INTERNET), [203, 0, 113, 1 + n], kinds, true);
        }
    }
    net
}

/// Both behind one NAT, which may be behind another.
fn together(kinds: Kinds, hairpin: bool, is_double: bool) -> Net {
    let mut net = Net::default();
    for n in 0..2 {
        net.machines.push((1, ([192, 168, 1, 2 + n], 51820).into()));
    }
    let outer = if is_double { 2 } else { INTERNET };
    let address = if is_double {
        [100, 64, 0, 1]
    } else {
        [203, 0, 113, 1]
    };
    net.add_nat((1, outer), address, kinds, hairpin);
    if is_double {
        net.add_nat((2, INTERNET), [203, 0, 113, 2], kinds, hairpin);
    }
    net
}

fn met(net: Net, weather: Weather, seed: u64) -> World {
    let mut world = World::new(net, weather, seed);
    world.gather();
    world.talk(20 * SECOND);
    world
}

#[test]
fn two_peers_behind_most_nats_meet_within_a_second_of_the_first_packet() {
    for a in [None, Some(HOME), Some(FULL_CONE), Some(RESTRICTED)] {
        for b in [None, Some(HOME), Some(FULL_CONE), Some(RESTRICTED)] {
            let mut world = World::new(apart(a, b), FAIR, 1);
            world.gather();
            world.talk(SECOND);
            world.must_be_direct(&format!("{a:?} {b:?}"));
        }
    }
}

#[test]
fn an_end_without_data_of_its_own_answers_the_other() {
    let mut world = World::new(apart(Some(HOME), Some(HOME)), FAIR, 1);
    world.gather();
    for _ in 0..10 {
        world.data(0);
        world.pass(Duration::from_millis(100));
    }
    world.must_be_direct("one-way data");
}

#[test]
fn a_hard_nat_is_met_by_the_address_that_the_other_learns() {
    for open in [None, Some(FULL_CONE), Some(RESTRICTED)] {
        let mut world = met(apart(Some(HARD), open), FAIR, 1);
        world.must_be_direct(&format!("{open:?}"));
        assert_eq!(world.kind(1), CandidateKind::Learnt);
    }
}

#[test]
fn two_nats_that_cannot_be_passed_leave_data_on_the_hub_and_pause_longer_each_time() {
    let mut world = met(apart(Some(HARD), Some(HOME)), FAIR, 1);
    for end in 0..2 {
        assert_eq!(world.ends[end].path, None);
    }
    world.talk(30 * SECOND);
    let why = world.ends[0].agent.why_not_direct();
    assert_eq!(why, Some(WhyNotDirect::Unreachable));
    let sent = |world: &World| world.ends[0].agent.probes_sent;
    let before = sent(&world);
    world.talk(600 * SECOND);
    let meetings = (sent(&world) - before) / 12;
    assert!((2..20).contains(&meetings), "{meetings}");
}

#[test]
fn behind_one_nat_the_addresses_of_the_home_win() {
    for hairpin in [false, true] {
        for is_double in [false, true] {
            for kinds in [HOME, HARD, FULL_CONE] {
                let mut world = met(together(kinds, hairpin, is_double), FAIR, 1);
                world.must_be_direct("together");
                for end in 0..2 {
                    assert_eq!(world.kind(end), CandidateKind::Host);
                }
            }
        }
    }
}

#[test]
fn two_homes_behind_the_nat_of_a_provider_meet_by_its_hairpin() {
    let mut net = apart(Some(HOME), Some(HOME));
    for (n, nat) in net.nats.iter_mut().enumerate() {
        nat.outer = 3;
        nat.address = [100, 64, 0, 1 + n as u8];
    }
    net.add_nat((3, INTERNET), [203, 0, 113, 9], FULL_CONE, true);
    met(net, FAIR, 1).must_be_direct("carrier-grade");
}

#[test]
fn in_foul_weather_they_meet_in_the_end() {
    for seed in 1..60 {
        for (a, b) in [
            (Some(HOME), Some(HOME)),
            (Some(HARD), None),
            (Some(RESTRICTED), Some(HARD)),
            (None, None),
        ] {
            let mut world = met(apart(a, b), FOUL, seed * 0x9e37_79b9);
            world.talk(100 * SECOND);
            world.must_be_direct(&format!("{a:?} {b:?} {seed}"));
        }
    }
}

#[test]
fn a_path_without_data_is_kept_for_minutes_and_then_nothing_wakes() {
    let mut world = met(apart(Some(HOME), Some(HOME)), FAIR, 1);
    let before = world.ends[0].sent.len();
    world.pass(330 * SECOND);
    let kept = world.ends[0].sent.len() - before;
    assert!(
        (20..60).contains(&kept),
        "{kept}: a probe and a reply each 20 s"
    );
    for end in &mut world.ends {
        assert_eq!(end.path, None);
        assert_eq!(end.agent.poll_timeout(), None);
        assert_eq!(end.agent.why_not_direct(), Some(WhyNotDirect::Idle));
    }
    world.talk(2 * SECOND);
    world.must_be_direct("again");
}

#[test]
fn both_ends_roam_at_once_and_meet_anew() {
    for seed in 1..20 {
        let mut world = met(apart(Some(HOME), Some(HOME)), FOUL, seed);
        for (n, machine) in world.net.machines.iter_mut().enumerate() {
            machine.1 = ([192, 168, 1 + n as u8, 77], 51820).into();
        }
        world.gather();
        world.talk(120 * SECOND);
        world.must_be_direct(&format!("{seed}"));
    }
}

#[test]
fn a_nat_that_forgets_is_noticed_by_the_next_probes() {
    let mut world = met(apart(Some(HOME), None), FAIR, 1);
    world.must_be_direct("before");
    world.net.nats[0].restart();
    world.talk(30 * SECOND);
    world.must_be_direct("after");
}

#[test]
fn time_that_jumps_ends_the_path_and_the_next_packet_begins_a_meeting() {
    let mut world = met(apart(Some(HOME), Some(HOME)), FAIR, 1);
    world.now += 3 * 3600 * SECOND;
    world.pass(SECOND);
    for end in &world.ends {
        assert_eq!(end.path, None);
    }
    world.talk(2 * SECOND);
    world.must_be_direct("after");
}

#[test]
fn a_path_stays_while_nothing_changes() {
    let mut world = met(apart(Some(HOME), None), FOUL, 7);
    world.talk(60 * SECOND);
    world.must_be_direct("at first");
    let switches = [0, 1].map(|end| world.ends[end].switches);
    world.talk(900 * SECOND);
    assert_eq!([0, 1].map(|end| world.ends[end].switches), switches);
}

#[test]
fn a_stock_peer_costs_nothing_but_a_meeting_now_and_then() {
    let mut world = World::new(apart(Some(HOME), Some(HOME)), FAIR, 1);
    world.is_stock = true;
    world.gather();
    world.talk(700 * SECOND);
    assert_eq!(world.ends[0].sent, []);
    let why = world.ends[0].agent.why_not_direct();
    assert_eq!(why, Some(WhyNotDirect::NoAnswer));
}

#[test]
fn another_network_ends_the_pause_after_a_meeting_in_vain() {
    let mut world = World::new(apart(Some(HARD), Some(HARD)), FAIR, 1);
    world.gather();
    world.talk(20 * SECOND);
    let why = world.ends[0].agent.why_not_direct();
    assert_eq!(why, Some(WhyNotDirect::Unreachable));
    let begins = |world: &mut World| world.ends[0].agent.want(world.now);
    assert!(!begins(&mut world));
    // What STUN servers say or no longer say is no other network.
    world.ends[0].agent.set_local(&[], world.now);
    assert!(!begins(&mut world));
    world.ends[0].agent.network_changed(world.now);
    assert!(begins(&mut world));
}

#[test]
fn a_peer_that_lies_aims_few_probes_at_others() {
    // A request by the hub says that the peer has no path, so that this side leaves it, too.
    aims_few_probes_at_others(true);
    let path = aims_few_probes_at_others(false);
    assert!(path.is_some(), "the path stays");
}

/// Lies for ten minutes; returns the path in the end.
fn aims_few_probes_at_others(is_request: bool) -> Option<SocketAddr> {
    use convoy_paths::{Candidates, MAX_CANDIDATES, Message, Origin};
    let mut world = met(apart(None, None), FAIR, 1);
    world.must_be_direct("before");
    let before = world.ends[0].sent.len();
    let liar = world.net.machines[1].1;
    // New victims each 100 ms for ten minutes, and sources that are forged.
    for n in 0..6000_u32 {
        let victim = |k: u32| ([198, 18, (n >> 8) as u8, n as u8], 1000 + k as u16).into();
        let list = (0..MAX_CANDIDATES as u32)
            .map(|k| candidate(CandidateKind::Host, victim(k)))
            .collect();
        let lie = Message::Candidates(Candidates {
            generation: (9 << 32) + u64::from(n),
            is_request,
            list,
        });
        let agent = &mut world.ends[0].agent;
        let _ = agent.handle_message(lie, Origin::Hub, |_| true, world.now);
        let remote = victim(99);
        let forged = Origin::Direct {
            remote,
            local: None,
        };
        let _ = agent.handle_message(Message::Probe { id: 1 }, forged, |_| true, world.now);
        world.data(0);
        world.pass(Duration::from_millis(100));
    }
    let sent = &world.ends[0].sent[before..];
    let probes = sent.iter().filter(|(_, to)| *to != liar).count();
    // Each forged source got its one reply.
    let probes = probes - 6000;
    let most = convoy_paths::MOST_UNANSWERED_PROBES as usize + 600;
    assert!((100..=most).contains(&probes), "{probes}");
    world.ends[0].path
}

#[test]
fn a_peer_that_repeats_its_replies_aims_no_more_probes_at_others() {
    use convoy_paths::{Agent, Candidates, MAX_CANDIDATES, Message, Origin, ProbeBudget};
    let liar: SocketAddr = ([203, 0, 113, 9], 51820).into();
    let (mut agent, mut budget) = (Agent::new(1), ProbeBudget::default());
    let (mut numbers, mut victims) = (1.., 0);
    for n in 0..6000_u32 {
        let now = SECOND + n * Duration::from_millis(100);
        let victim = |k: u16| ([198, 18, (n >> 8) as u8, n as u8], 1000 + k).into();
        let others = (1..MAX_CANDIDATES as u16).map(victim);
        let list = others.chain([liar]);
        let lie = Message::Candidates(Candidates {
            generation: (9 << 32) + u64::from(n),
            is_request: true,
            list: list.map(|to| candidate(CandidateKind::Host, to)).collect(),
        });
        let _ = agent.handle_message(lie, Origin::Hub, |_| true, now);
        while let Some(sent) = agent.poll_transmit(&mut budget, || numbers.next(), now) {
            let (Message::Probe { id }, Origin::Direct { remote, .. }) = (sent.message, sent.to)
            else {
                continue;
            };
            victims += u32::from(remote != liar);
            let replies = (0..50).map(|k| if k % 2 == 0 { id } else { !id });
            for id in replies.filter(|_| remote == liar) {
                let observed = remote;
                let reply = Message::Reply { id, observed };
                let _ = agent.handle_message(reply, sent.to, |_| true, now);
            }
        }
    }
    let most = convoy_paths::MOST_UNANSWERED_PROBES + 600;
    assert!((100..=most).contains(&victims), "{victims}");
}

#[test]
fn probes_that_others_leave_no_room_for_do_not_count() {
    use convoy_paths::{Agent, Candidates, MAX_CANDIDATES, Message, Origin, ProbeBudget};
    let mut agent = Agent::new(1);
    let mut numbers = 1..;
    let mut probes =
        |budget: &mut ProbeBudget, generation: u64, begin: Duration, time: Duration| {
            let to = |n: u8| candidate(CandidateKind::Host, ([203, 0, 113, n], 51820).into());
            let candidates = Message::Candidates(Candidates {
                generation,
                is_request: true,
                list: (1..=MAX_CANDIDATES as u8).map(to).collect(),
            });
            let _ = agent.handle_message(candidates, Origin::Hub, |_| true, begin);
            let (mut now, mut sent) = (begin, 0);
            while now < begin + time {
                while let Some(it) = agent.poll_transmit(budget, || numbers.next(), now) {
                    sent += usize::from(matches!(it.message, Message::Probe { .. }));
                }
                now += Duration::from_millis(20);
            }
            sent
        };
    let mut spent = ProbeBudget::default();
    while spent.take(100 * SECOND) {}
    assert_eq!(probes(&mut spent, 1, 10 * SECOND, 10 * SECOND), 0);
    let rounds = probes(&mut ProbeBudget::default(), 2, 20 * SECOND, 10 * SECOND);
    assert_eq!(rounds, 12 * MAX_CANDIDATES, "a whole round of each pair");
}

#[test]
fn a_peer_that_answers_everything_leaves_others_their_probes() {
    use convoy_paths::{Agent, Candidates, MAX_CANDIDATES, Message, Origin, ProbeBudget};
    let (mut liar, mut other) = (Agent::new(1), Agent::new(2));
    let (mut budget, mut numbers, mut sent) = (ProbeBudget::default(), 1.., 0);
    let told = |generation| {
        let to = |n: u8| candidate(CandidateKind::Host, ([203, 0, 113, n], 51820).into());
        Message::Candidates(Candidates {
            generation,
            is_request: true,
            list: (1..=MAX_CANDIDATES as u8).map(to).collect(),
        })
    };
    for n in 0..6000_u32 {
        let now = SECOND + n * Duration::from_millis(5);
        let _ = liar.handle_message(told(n.into()), Origin::Hub, |_| true, now);
        while let Some(it) = liar.poll_transmit(&mut budget, || numbers.next(), now) {
            if let (Message::Probe { id }, Origin::Direct { remote, .. }) = (it.message, it.to) {
                let observed = remote;
                let reply = Message::Reply { id, observed };
                let _ = liar.handle_message(reply, it.to, |_| true, now);
            }
        }
        if n == 4000 {
            let _ = other.handle_message(told(1), Origin::Hub, |_| true, now);
        }
        while let Some(it) = other.poll_transmit(&mut budget, || numbers.next(), now) {
            sent += usize::from(matches!(it.message, Message::Probe { .. }));
        }
    }
    // Ten seconds are enough for a round of each pair.
    assert_eq!(sent, 12 * MAX_CANDIDATES);
}

#[test]
fn a_flood_of_probes_gets_few_replies() {
    use convoy_paths::{Agent, Message, Origin, ProbeBudget};
    let (mut agent, mut replies, mut refused) = (Agent::new(1), 0, 0);
    for n in 0..10_000_u16 {
        let now = SECOND + u32::from(n) * Duration::from_micros(100);
        let forged = Origin::Direct {
            remote: ([203, 0, 113, 9], 1000 + n).into(),
            local: None,
        };
        let probe = Message::Probe { id: n.into() };
        let taken = agent.handle_message(probe, forged, |_| true, now);
        refused += usize::from(taken.is_err());
        while let Some(it) = agent.poll_transmit(&mut ProbeBudget::default(), || Some(1), now) {
            replies += usize::from(matches!(it.message, Message::Reply { .. }));
        }
    }
    assert!((100..=200).contains(&replies), "{replies} in a second");
    assert_eq!(replies + refused, 10_000);
}

#[test]
fn a_forged_source_gets_no_reply_where_nothing_may_be_probed() {
    use convoy_paths::{Agent, Candidates, Message, Origin, ProbeBudget};
    let is_answered = |message: &Message, remote: &str, is_allowed: bool| {
        let remote = remote.parse().unwrap();
        let local = None;
        let forged = Origin::Direct { remote, local };
        let mut agent = Agent::new(1);
        let taken = agent.handle_message(message.clone(), forged, |_| is_allowed, SECOND);
        let sent = agent.poll_transmit(&mut ProbeBudget::default(), || Some(1), SECOND);
        let is_answered = sent.is_some_and(|it| it.to == forged);
        assert_eq!(is_answered, taken.is_ok());
        is_answered
    };
    let candidates = Message::Candidates(Candidates {
        generation: 9 << 32,
        ..Candidates::default()
    });
    for message in [Message::Probe { id: 1 }, candidates] {
        for victim in ["127.0.0.1:53", "169.254.169.254:80", "224.0.0.251:5353"] {
            assert!(!is_answered(&message, victim, true), "{message:?} {victim}");
        }
        let is_refused = !is_answered(&message, "192.0.2.1:1", false);
        assert!(is_refused, "{message:?}: refused by the caller");
        assert!(is_answered(&message, "192.0.2.1:1", true), "{message:?}");
    }
}

#[test]
fn paths_that_all_answer_are_not_probed_without_end() {
    let jitter = Weather {
        delays: (5, 120),
        ..FAIR
    };
    for seed in 1..10 {
        let mut world = met(together(HOME, true, false), jitter, seed);
        let before = world.ends[0].sent.len();
        world.talk(300 * SECOND);
        let kept = world.ends[0].sent.len() - before;
        assert!(kept < 60, "{seed}: {kept}: a probe and a reply each 20 s");
    }
}
