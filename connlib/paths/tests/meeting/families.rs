//! Relays with addresses of IPv4, of IPv6, and of both.

use std::net::SocketAddr;

use convoy_paths::{Agent, Candidates, MAX_CANDIDATES, Message, Origin, WhyNotDirect};
use convoy_types::{Candidate, CandidateKind};

use crate::{
    SECOND,
    net::{INTERNET, Net},
    world::{FAIR, World, candidate},
};

const RELAYED: [&str; 2] = ["[2001:db8:9::1]:50000", "198.51.100.9:50001"];

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Two ends of IPv6 alone between which nothing passes, with relays whose addresses are in this network.
fn ipv6_alone(relays: &[usize], at: &str) -> World {
    let mut net = Net::default();
    for host in ["[2001:db8:1::2]:51820", "[2001:db8:2::2]:51820"] {
        net.machines.push((INTERNET, address(host)));
    }
    let mut world = World::new(net, FAIR, 1);
    world.is_cut = true;
    for end in relays {
        world.add_relay_in(*end, at.parse().expect("an address"));
    }
    world.gather();
    world
}

/// An agent that looks for a peer with these addresses in vain, and wants a relay.
fn in_vain(list: &[Candidate]) -> Agent {
    let mut agent = Agent::new(1);
    agent.allow_relay(true, SECOND);
    assert!(agent.want(SECOND));
    agent.handle_session(SECOND);
    let offer = Message::Candidates(Candidates {
        generation: 1,
        is_request: false,
        list: list.to_vec(),
    });
    let _ = agent.handle_message(offer, Origin::Hub, |_| true, SECOND);
    agent.handle_timeout(0, 4 * SECOND);
    assert!(agent.wants_relay());
    agent
}

fn host(text: &str) -> Candidate {
    candidate(CandidateKind::Host, address(text))
}

fn relay_peers(agent: &Agent) -> Vec<String> {
    agent.relay_peers().map(|it| it.to_string()).collect()
}

#[test]
fn two_ends_of_ipv6_alone_meet_by_a_relay_of_ipv6() {
    for relays in [&[0][..], &[1], &[0, 1]] {
        let mut world = ipv6_alone(relays, "2001:db8:9::1");
        world.talk(4 * SECOND);
        world.must_be_direct(&format!("{relays:?}"));
        for end in 0..2 {
            assert_eq!(world.kind(end), CandidateKind::Relayed);
        }
        world.talk(60 * SECOND);
        world.must_be_direct("later");
    }
}

#[test]
fn a_relay_of_ipv4_does_not_help_two_ends_of_ipv6_alone_and_is_given_back() {
    let mut world = ipv6_alone(&[0], "198.51.100.12");
    world.talk(60 * SECOND);
    for end in &world.ends {
        assert_eq!(end.path, None);
        let why = end.agent.why_not_direct();
        assert_eq!(why, Some(WhyNotDirect::Unreachable));
    }
    world.pass(100 * SECOND);
    assert_eq!(world.ends[0].agent.poll_timeout(), None);
}

#[test]
fn a_relay_is_to_reach_each_address_once_before_further_ports_and_both_families_in_turn() {
    let reflexive = |port| candidate(CandidateKind::Reflexive, ([203, 0, 113, 7], port).into());
    let mut list: Vec<_> = (1..5).map(reflexive).collect();
    list.extend(
        [
            "[fd00::7]:1",
            "[2001:db8::7]:1",
            "10.1.2.3:1",
            "192.0.2.7:1",
        ]
        .map(host),
    );
    let mut agent = in_vain(&list);
    let both = [
        "[2001:db8::7]:1",
        "203.0.113.7:1",
        "[fd00::7]:1",
        "192.0.2.7:1",
    ];
    assert_eq!(relay_peers(&agent), both);
    // Once the relay has an address of one family alone, those of the other come last.
    assert!(agent.set_relay(&[address(RELAYED[1])], 4 * SECOND));
    agent.handle_timeout(0, 20 * SECOND);
    let mut peers = relay_peers(&agent);
    peers.sort();
    let expected = [
        "10.1.2.3:1",
        "192.0.2.7:1",
        "203.0.113.7:1",
        "203.0.113.7:2",
    ];
    assert_eq!(peers, expected);
}

#[test]
fn both_addresses_of_a_relay_are_told_and_no_more_than_the_bound() {
    let mut agent = in_vain(&[host("[2001:db8::7]:1"), host("192.0.2.7:1")]);
    let local = (0..MAX_CANDIDATES as u16).map(|n| ([192, 0, 2, 1], n + 1).into());
    let local: Vec<_> = local.map(|it| candidate(CandidateKind::Host, it)).collect();
    agent.set_local(&local, 4 * SECOND);
    assert!(agent.set_relay(&RELAYED.map(address), 4 * SECOND));
    assert!(!agent.set_relay(&RELAYED.map(address), 4 * SECOND));
    let told = told_by(&mut agent);
    assert_eq!(told[..6], local[..6]);
    let relayed = RELAYED.map(|it| candidate(CandidateKind::Relayed, address(it)));
    assert_eq!(told[6..], relayed);
}

/// The candidates that an agent tells next.
fn told_by(agent: &mut Agent) -> Vec<Candidate> {
    let mut budget = convoy_paths::ProbeBudget::default();
    let mut sent = std::iter::from_fn(|| agent.poll_transmit(&mut budget, || Some(1), 4 * SECOND));
    let told = sent.find_map(|it| match it.message {
        Message::Candidates(candidates) => Some(candidates.list),
        _ => None,
    });
    told.expect("an offer")
}

/// The pairs by the relay.
fn by_relay(agent: &Agent) -> Vec<SocketAddr> {
    let pairs = agent.pairs().iter().filter(|it| it.is_by_relay());
    pairs.map(|it| it.candidate.address).collect()
}

#[test]
fn an_address_that_the_relay_cannot_reach_is_not_learnt_from_it() {
    let mut agent = in_vain(&[host("192.0.2.7:1")]);
    assert!(agent.set_relay(&[address(RELAYED[1])], 4 * SECOND));
    let probe = |agent: &mut Agent, from: &str| {
        let remote = address(from);
        let probe = Message::Probe { id: 1 };
        let _ = agent.handle_message(probe, Origin::Relay { remote }, |_| true, 4 * SECOND);
    };
    let known = by_relay(&agent);
    probe(&mut agent, "[2001:db8::8]:1");
    assert_eq!(by_relay(&agent), known);
    probe(&mut agent, "192.0.2.8:1");
    assert_eq!(by_relay(&agent).len(), known.len() + 1);
}

#[test]
fn an_address_of_one_family_that_is_lost_leaves_the_path_of_the_other() {
    for (kept, lost) in [(0, 1), (1, 0)] {
        let list = [host("[2001:db8::7]:1"), host("192.0.2.7:1")];
        let mut agent = in_vain(&list);
        let relayed = RELAYED.map(address);
        assert!(agent.set_relay(&relayed, 4 * SECOND));
        let remote = list[kept].address;
        assert!(agent.handle_channel(remote, 4 * SECOND));
        answer_by_relay(&mut agent, remote);
        assert_eq!(agent.path_pair().expect("a path").candidate.address, remote);
        assert!(agent.set_relay(&relayed[kept..=kept], 4 * SECOND));
        assert_eq!(agent.path_pair().expect("a path").candidate.address, remote);
        assert!(agent.set_relay(&relayed[lost..=lost], 4 * SECOND));
        assert_eq!(agent.why_not_direct(), Some(WhyNotDirect::RelayLost));
    }
}

/// Answers the probe that the agent sends by its relay.
fn answer_by_relay(agent: &mut Agent, remote: SocketAddr) {
    let mut budget = convoy_paths::ProbeBudget::default();
    let mut sent = std::iter::from_fn(|| agent.poll_transmit(&mut budget, || Some(7), 4 * SECOND));
    assert!(sent.any(|it| it.to == Origin::Relay { remote }));
    let reply = Message::Reply {
        id: 7,
        observed: remote,
    };
    let _ = agent.handle_message(reply, Origin::Relay { remote }, |_| true, 4 * SECOND);
}
