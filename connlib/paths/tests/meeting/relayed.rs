//! The relay as the last way: when it is asked for, what it carries, and when it is given back.

use std::time::Duration;

use convoy_paths::{
    Agent, BETWEEN_CHANNELS, CHANNELS_AT_ONCE, Candidates, MAX_CANDIDATES, MAX_CHANNELS, MAX_PAIRS,
    Message, Origin, ProbeBudget, WhyNotDirect,
};
use convoy_types::CandidateKind;

use crate::{
    HARD, HOME, RESTRICTED, SECOND, apart,
    net::Net,
    world::{FAIR, FOUL, World, candidate},
};

/// Two ends, of which `relays` have one.
fn world(net: Net, relays: &[usize], seed: u64) -> World {
    let mut world = World::new(net, FAIR, seed);
    for end in relays {
        world.add_relay(*end);
    }
    world.gather();
    world
}

#[test]
fn two_hard_nats_meet_by_a_relay_that_only_one_has() {
    for end in 0..2 {
        let mut world = world(apart(Some(HARD), Some(HARD)), &[end], 1);
        world.talk(4 * SECOND);
        world.must_be_direct(&format!("{end}"));
        for it in 0..2 {
            assert_eq!(world.kind(it), CandidateKind::Relayed);
            assert_eq!(world.ends[it].is_by_relay, it == end);
        }
        let first = world.ends[end].agent.relay_peers().next();
        assert_eq!(first, world.ends[end].path, "the path comes first");
    }
}

#[test]
fn two_hard_nats_meet_by_one_relay_if_both_have_one() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0, 1], 1);
    world.talk(4 * SECOND);
    world.must_be_direct("both");
    for end in 0..2 {
        assert_eq!(world.kind(end), CandidateKind::Relayed);
    }
    world.talk(60 * SECOND);
    world.must_be_direct("later");
}

#[test]
fn a_relay_is_asked_for_after_two_seconds_in_vain_and_not_by_those_who_meet() {
    let mut met = world(apart(Some(HOME), Some(RESTRICTED)), &[0, 1], 1);
    met.talk(60 * SECOND);
    met.must_be_direct("met");
    let mut hard = world(apart(Some(HARD), Some(HARD)), &[0], 1);
    hard.talk(Duration::from_millis(1900));
    let asked = |world: &World| world.ends[0].relay.as_ref().unwrap().times_asked;
    assert_eq!((asked(&met), asked(&hard)), (0, 0));
    hard.talk(SECOND);
    assert_eq!(asked(&hard), 1);
}

#[test]
fn a_peer_that_answers_no_handshake_costs_no_relay() {
    let mut world = world(apart(Some(HOME), Some(HOME)), &[0], 1);
    world.talk(10 * SECOND);
    world.is_stock = true;
    world.now += 7200 * SECOND;
    world.pass(SECOND);
    world.talk(100 * SECOND);
    assert_eq!(world.ends[0].relay.as_ref().unwrap().times_asked, 0);
}

#[test]
fn a_relay_that_dies_gives_its_data_back_to_the_hub() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0], 1);
    world.talk(10 * SECOND);
    world.must_be_direct("before");
    let now = world.now;
    let end = &mut world.ends[0];
    end.relay.as_mut().unwrap().die(&mut end.agent, now);
    assert_eq!(end.agent.why_not_direct(), Some(WhyNotDirect::RelayLost));
    // The next packet goes by the hub, and the request for a meeting takes the path from the other end.
    world.pass(Duration::from_millis(1));
    assert_eq!(world.ends[0].path, None);
    world.data(0);
    world.pass(SECOND);
    assert_eq!(world.ends[1].path, None);
    world.ends[0].relay.as_mut().unwrap().is_alive = true;
    world.talk(90 * SECOND);
    world.must_be_direct("after");
}

#[test]
fn a_relay_that_dies_without_a_word_is_noticed_within_half_a_minute() {
    for relays in [&[0][..], &[0, 1]] {
        let mut world = world(apart(Some(HARD), Some(HARD)), relays, 1);
        world.talk(10 * SECOND);
        world.must_be_direct("before");
        for end in relays {
            world.ends[*end].relay.as_mut().unwrap().fall_silent();
        }
        world.talk(30 * SECOND);
        assert_eq!([0, 1].map(|end| world.ends[end].path), [None; 2]);
    }
}

#[test]
fn an_idle_pair_gives_the_relay_back_and_then_nothing_wakes() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0, 1], 1);
    world.talk(10 * SECOND);
    world.must_be_direct("before");
    world.pass(400 * SECOND);
    for end in &world.ends {
        assert!(!end.relay.as_ref().unwrap().is_given);
        assert_eq!(end.agent.poll_timeout(), None);
        assert!(
            !end.agent
                .pairs()
                .iter()
                .any(convoy_paths::Pair::is_by_relay)
        );
    }
    world.talk(4 * SECOND);
    world.must_be_direct("again");
}

#[test]
fn whenever_a_pair_falls_silent_the_relay_is_given_back() {
    // In the last three, a keepalive of one end arrives just after the path of the other has ended.
    for seed in (1..=60).chain([941, 1270, 1640]) {
        let nats = apart(Some(HARD), Some(HARD));
        let mut world = world(nats, &[0, 1], seed * 0x9e37_79b9);
        world.weather = FOUL;
        world.talk(20 * SECOND);
        world.weather = FAIR;
        for _ in 0..60 + seed % 60 {
            let end = world.roll() % 2;
            world.data(end as usize);
            let time = world.roll() % 2000;
            world.pass(Duration::from_millis(time));
        }
        world.pass(360 * SECOND);
        let wakes = [0, 1].map(|end| world.ends[end].agent.poll_timeout());
        assert_eq!(wakes, [None; 2], "{seed}");
    }
}

#[test]
fn a_direct_path_replaces_a_relayed_one_and_the_relay_is_given_back() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0, 1], 1);
    world.talk(10 * SECOND);
    world.must_be_direct("relayed");
    for nat in &mut world.net.nats {
        (nat.mapping, nat.filtering) = HOME;
        nat.restart();
    }
    world.gather();
    world.talk(100 * SECOND);
    world.must_be_direct("direct");
    for end in 0..2 {
        assert_ne!(world.kind(end), CandidateKind::Relayed);
        assert!(!world.ends[end].relay.as_ref().unwrap().is_given);
    }
}

#[test]
fn a_direct_path_is_looked_for_again_and_again_while_a_relay_carries_data() {
    let mut world = world(apart(None, Some(HOME)), &[0], 1);
    world.is_cut = true;
    world.talk(10 * SECOND);
    world.must_be_direct("relayed");
    assert_eq!(world.kind(0), CandidateKind::Relayed);
    world.talk(1000 * SECOND);
    assert_eq!(world.kind(0), CandidateKind::Relayed);
    // Nobody tells the two.
    world.is_cut = false;
    world.talk(610 * SECOND);
    world.must_be_direct("direct");
    assert_ne!(world.kind(0), CandidateKind::Relayed);
}

#[test]
fn a_relay_slower_than_the_hub_is_not_taken() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0], 1);
    for end in &mut world.ends {
        end.agent.hub_round_trip = Some(Duration::from_millis(5));
    }
    // The offers by the hub take as long as the probes: what they tell is to be forgotten.
    for _ in 0..450 {
        for end in 0..2 {
            world.ends[end].agent.hub_round_trip = Some(Duration::from_millis(5));
            world.data(end);
        }
        world.pass(Duration::from_millis(100));
    }
    assert_eq!([0, 1].map(|end| world.ends[end].path), [None; 2]);
    for end in &world.ends {
        let why = end.agent.why_not_direct();
        assert_eq!(why, Some(WhyNotDirect::SlowerThanHub));
    }
    // A relay that is gone is no longer the reason.
    world.ends[0].relay.as_mut().unwrap().fall_silent();
    world.talk(400 * SECOND);
    let why = world.ends[0].agent.why_not_direct();
    assert_eq!(why, Some(WhyNotDirect::Unreachable));
}

#[test]
fn a_peer_that_alone_uses_the_relay_learns_that_it_is_gone() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0], 1);
    for _ in 0..450 {
        // To the owner alone, the hub is faster.
        world.ends[0].agent.hub_round_trip = Some(Duration::from_millis(5));
        world.data(1);
        world.pass(Duration::from_millis(100));
    }
    assert_eq!(world.ends[0].path, None);
    assert!(world.ends[1].path.is_some());
    let now = world.now;
    let end = &mut world.ends[0];
    end.relay.as_mut().unwrap().die(&mut end.agent, now);
    world.pass(SECOND);
    assert_eq!(world.ends[1].path, None);
    let why = world.ends[1].agent.why_not_direct();
    assert_eq!(why, Some(WhyNotDirect::RelayLost));
}

#[test]
fn an_address_heard_before_the_peer_has_said_that_it_is_a_relays_is_one_all_the_same() {
    let mut agent = Agent::new(1);
    let remote = "198.51.100.12:50000".parse().unwrap();
    let local = None;
    let probe = Message::Probe { id: 1 };
    let _ = agent.handle_message(probe, Origin::Direct { remote, local }, |_| true, SECOND);
    assert_eq!(agent.pairs()[0].kind(), CandidateKind::Learnt);
    let offer = Message::Candidates(Candidates {
        generation: 1,
        is_request: false,
        list: vec![candidate(CandidateKind::Relayed, remote)],
    });
    let _ = agent.handle_message(offer, Origin::Hub, |_| true, SECOND);
    let kinds: Vec<_> = agent.pairs().iter().map(convoy_paths::Pair::kind).collect();
    assert_eq!(kinds, [CandidateKind::Relayed]);
}

#[test]
fn a_probe_by_a_relay_that_nobody_asked_for_is_not_answered() {
    let mut agent = Agent::new(1);
    agent.allow_relay(true, SECOND);
    let remote = "203.0.113.7:9".parse().unwrap();
    let probe = Message::Probe { id: 1 };
    let _ = agent.handle_message(probe, Origin::Relay { remote }, |_| true, SECOND);
    assert!(agent.pairs().is_empty());
    let sent = agent.poll_transmit(&mut ProbeBudget::default(), || Some(1), SECOND);
    assert_eq!(sent, None);
}

#[test]
fn in_foul_weather_data_arrives_by_relay_or_hub() {
    let mut met = 0;
    for seed in 1..8 {
        for relays in [&[0][..], &[1], &[0, 1]] {
            let mut world = world(apart(Some(HARD), Some(HARD)), relays, seed * 0x9e37_79b9);
            world.weather = FOUL;
            world.talk(200 * SECOND);
            // The two may disagree on whether the relay is slower than the hub.
            for _ in 0..300 {
                for end in 0..2 {
                    assert!(world.data(end), "{relays:?} {seed}");
                }
                world.pass(Duration::from_millis(100));
            }
            met += u32::from(world.ends.iter().all(|end| end.path.is_some()));
        }
    }
    assert!(met > 12, "{met}");
}

#[test]
fn a_liar_gets_few_channels_and_few_datagrams_of_the_relay() {
    let mut world = world(apart(Some(HARD), Some(HARD)), &[0], 1);
    world.talk(10 * SECOND);
    world.must_be_direct("before");
    let relay = world.ends[0].relay.as_ref().unwrap();
    let (before, sent_before) = (relay.all_channels.len(), relay.sent.len());
    let path = world.ends[0].path.unwrap();
    const MINUTES: u64 = 10;
    for n in 0..MINUTES * 600 {
        let victim = |k: u64| ([198, 18, (n >> 8) as u8, n as u8], 1000 + k as u16).into();
        let list = (0..MAX_CANDIDATES as u64)
            .map(|k| candidate(CandidateKind::Reflexive, victim(k)))
            .collect();
        let lie = Message::Candidates(Candidates {
            generation: (9 << 32) + n,
            is_request: false,
            list,
        });
        let now = world.now;
        let agent = &mut world.ends[0].agent;
        let _ = agent.handle_message(lie, Origin::Relay { remote: path }, |_| true, now);
        let forged = Origin::Relay { remote: victim(99) };
        let _ = agent.handle_message(Message::Probe { id: n }, forged, |_| true, now);
        world.data(0);
        world.pass(Duration::from_millis(100));
        let pairs = world.ends[0].agent.pairs();
        let by_relay = pairs.iter().filter(|pair| pair.is_by_relay()).count();
        assert!(by_relay <= MAX_CHANNELS && pairs.len() <= MAX_PAIRS);
    }
    let relay = world.ends[0].relay.as_ref().unwrap();
    let channels = relay.all_channels.len() - before;
    let slow = MINUTES * 60 / BETWEEN_CHANNELS.as_secs();
    let most = u64::from(CHANNELS_AT_ONCE) + slow + 1;
    assert!(
        (10..=most).contains(&(channels as u64)),
        "{channels} of {most}"
    );
    // A dozen probes for each channel, and a reply to each forged one.
    let sent = relay.sent[sent_before..].iter();
    let sent = sent.filter(|to| **to != path).count() as u64;
    assert!((1..=most * 13).contains(&sent), "{sent}");
    assert_eq!(world.ends[0].path, Some(path), "the path stays");
}

#[test]
fn a_relay_rests_once_a_direct_path_has_replaced_it() {
    for relays in [&[0][..], &[0, 1]] {
        let mut world = world(apart(Some(HOME), Some(HOME)), relays, 1);
        world.is_cut = true;
        world.talk(4 * SECOND);
        world.must_be_direct("relayed");
        world.is_cut = false;
        world.talk(10 * SECOND);
        world.must_be_direct("direct");
        assert_ne!(world.kind(0), CandidateKind::Relayed);
        let before = world.ends[0].sent.len();
        world.talk(300 * SECOND);
        let kept = world.ends[0].sent.len() - before;
        assert!(kept < 60, "{kept}: a probe and a reply each 20 s");
        for end in relays {
            assert!(!world.ends[*end].relay.as_ref().unwrap().is_given);
        }
    }
}
