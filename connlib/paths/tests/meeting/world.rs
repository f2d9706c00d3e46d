//! Two agents, the hub between them, and time that the test advances.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_paths::{Agent, Event, Message, Origin, ProbeBudget, Transmit};
use convoy_types::{Candidate, CandidateKind};

use crate::{
    net::{Arrived, Net},
    relay::Relay,
};

pub const STUN: ([u8; 4], u16) = ([198, 51, 100, 1], 3478);

/// Fate of datagrams: percent lost and doubled, and the longest delay.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub delays: (u64, u64),
}

pub const FAIR: Weather = Weather {
    lost: 0,
    doubled: 0,
    delays: (10, 10),
};
pub const FOUL: Weather = Weather {
    lost: 20,
    doubled: 10,
    delays: (5, 120),
};

pub struct End {
    pub agent: Agent,
    pub budget: ProbeBudget,
    /// The path that data takes.
    pub path: Option<SocketAddr>,
    pub switches: u32,
    /// Packets on the path.
    pub packets: u64,
    /// Datagrams sent to addresses, by time.
    pub sent: Vec<(Duration, SocketAddr)>,
    /// Its relay, if it has one.
    pub relay: Option<Relay>,
    /// The path that data takes, if this end's relay carries it.
    pub is_by_relay: bool,
    has_session: bool,
}

/// A message on its way to an end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: Duration,
    nth: u64,
    to: usize,
}

pub struct World {
    pub net: Net,
    pub ends: [End; 2],
    pub now: Duration,
    pub weather: Weather,
    /// Whether the two ends cannot reach each other.
    pub is_cut: bool,
    /// Whether the second end takes part.
    pub is_stock: bool,
    pub dice: u64,
    flying: BinaryHeap<Reverse<Flying>>,
    messages: std::collections::HashMap<u64, (Message, Origin)>,
    nth: u64,
}

impl World {
    /// The machines 0 and 1 of `net` are the ends.
    pub fn new(net: Net, weather: Weather, seed: u64) -> Self {
        let end = |n: u64| End {
            agent: Agent::new(0x1234_5678_9abc_def0 * n),
            budget: ProbeBudget::default(),
            path: None,
            switches: 0,
            packets: 0,
            sent: Vec::new(),
            relay: None,
            is_by_relay: false,
            has_session: false,
        };
        Self {
            net,
            ends: [end(3), end(5)],
            now: Duration::from_secs(10_000),
            weather,
            is_cut: false,
            is_stock: false,
            dice: seed | 1,
            flying: BinaryHeap::new(),
            messages: std::collections::HashMap::new(),
            nth: 0,
        }
    }

    /// Tells both ends their addresses.
    pub fn gather(&mut self) {
        for end in 0..2 {
            let host = self.net.machines[end].1;
            let reflexive = self.net.reflexive(end, STUN.into());
            let mut list = vec![candidate(CandidateKind::Host, host)];
            if reflexive != host {
                list.push(candidate(CandidateKind::Reflexive, reflexive));
            }
            self.ends[end].agent.set_local(&list, self.now);
        }
    }

    /// Gives each end a packet for the other ten times a second, for some time.
    pub fn talk(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            for end in 0..2 {
                self.data(end);
            }
            self.pass(Duration::from_millis(100));
        }
    }

    /// One packet; returns whether it arrives at the other end: the hub always works.
    pub fn data(&mut self, end: usize) -> bool {
        if self.is_stock && end == 1 {
            return true;
        }
        if let Some(path) = self.ends[end].path {
            let by_relay = self.ends[end].is_by_relay;
            let arrived = self.carry(end, path, by_relay);
            let is_there = arrived.is_some_and(|(machine, _)| machine == 1 - end);
            self.ends[end].packets += 1;
            self.ends[1 - end].packets += u64::from(is_there);
            return is_there;
        }
        if self.ends[end].agent.want(self.now) {
            self.handshake(end);
        }
        true
    }

    /// A handshake by the hub: both have a session a round trip later.
    fn handshake(&mut self, end: usize) {
        if self.is_stock {
            return;
        }
        for it in [end, 1 - end] {
            self.ends[it].has_session = true;
            self.ends[it].agent.handle_session(self.now);
        }
        self.drain();
    }

    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.drain();
            let timers = self.ends.iter().filter_map(|it| it.agent.poll_timeout());
            let flying = self.flying.peek().map(|it| it.0.at);
            let relays = self.ends.iter().filter_map(|it| it.relay.as_ref()?.next());
            let next = timers.chain(flying).chain(relays).min();
            let Some(next) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            for end in &mut self.ends {
                end.agent.handle_timeout(end.packets, self.now);
                if let Some(relay) = &mut end.relay {
                    relay.answer(&mut end.agent, self.now);
                }
            }
            self.arrive();
        }
        self.now = until;
    }

    fn arrive(&mut self) {
        while self.flying.peek().is_some_and(|it| it.0.at <= self.now) {
            let Some(Reverse(flying)) = self.flying.pop() else {
                return;
            };
            let (message, origin) = self.messages.remove(&flying.nth).expect("a message");
            let agent = &mut self.ends[flying.to].agent;
            let _ = agent.handle_message(message, origin, |_| true, self.now);
        }
    }

    fn drain(&mut self) {
        for end in 0..2 {
            loop {
                let id = self.roll();
                let now = self.now;
                let End { agent, budget, .. } = &mut self.ends[end];
                let Some(transmit) = agent.poll_transmit(budget, || Some(id), now) else {
                    break;
                };
                self.send(end, transmit);
            }
            while let Some(event) = self.ends[end].agent.poll_event() {
                let end = &mut self.ends[end];
                (end.path, end.is_by_relay) = match event {
                    Event::Direct {
                        remote, by_relay, ..
                    } => (Some(remote), by_relay),
                    Event::Hub(_) => (None, false),
                };
                end.switches += 1;
            }
            let End { agent, relay, .. } = &mut self.ends[end];
            if let Some(relay) = relay {
                relay.ask(agent, self.now);
            }
        }
    }

    fn send(&mut self, end: usize, Transmit { message, to }: Transmit) {
        let (to, origin) = match to {
            Origin::Hub => (1 - end, Origin::Hub),
            Origin::Direct { remote, .. } | Origin::Relay { remote } => {
                self.ends[end].sent.push((self.now, remote));
                let by_relay = matches!(to, Origin::Relay { .. });
                let Some(arrived) = self.carry(end, remote, by_relay) else {
                    return;
                };
                arrived
            }
        };
        // Whoever else is there cannot read it.
        if to != 1 - end || self.is_stock {
            return;
        }
        let copies = 1 + u64::from(self.roll() % 100 < self.weather.doubled);
        for _ in 0..copies {
            if self.roll() % 100 < self.weather.lost {
                continue;
            }
            let (least, most) = self.weather.delays;
            let delay = Duration::from_millis(least + self.roll() % (most - least + 1));
            self.nth += 1;
            self.messages.insert(self.nth, (message.clone(), origin));
            self.flying.push(Reverse(Flying {
                at: self.now + delay,
                nth: self.nth,
                to,
            }));
        }
    }

    /// Carries a datagram of an end; returns which end it arrives at, and how. Relays are the machines 2 and 3.
    fn carry(&mut self, end: usize, remote: SocketAddr, by_relay: bool) -> Option<(usize, Origin)> {
        let machine = match by_relay {
            true => {
                let relay = self.ends[end].relay.as_mut().expect("a relay");
                relay.sends_to(remote).then_some(2 + end)?
            }
            false => end,
        };
        let Arrived { machine, from } = self.net.carry(machine, remote)?;
        if let Some(end) = machine.checked_sub(2) {
            let relay = self.ends[end].relay.as_mut()?;
            let remote = from;
            return relay
                .admits(remote)
                .then_some((end, Origin::Relay { remote }));
        }
        if self.is_cut && !by_relay && !self.is_of_a_relay(from) {
            return None;
        }
        let local = Some(self.net.machines[machine].1.ip());
        let remote = from;
        Some((machine, Origin::Direct { remote, local }))
    }

    fn is_of_a_relay(&self, address: SocketAddr) -> bool {
        let mut relays = self.net.machines.iter().skip(2);
        relays.any(|(_, it)| *it == address)
    }

    /// Gives an end a relay.
    pub fn add_relay(&mut self, end: usize) {
        self.add_relay_in(end, [198, 51, 100, 12].into());
    }

    /// The same with an address after this one. Both machines are added, so that the numbers are the same.
    pub fn add_relay_in(&mut self, end: usize, ip: IpAddr) {
        while self.net.machines.len() < 4 {
            let port = 49_998 + self.net.machines.len() as u16;
            self.net
                .machines
                .push((crate::net::INTERNET, (ip, port).into()));
        }
        self.ends[end].agent.allow_relay(true, self.now);
        self.ends[end].relay = Some(Relay::new(self.net.machines[2 + end].1));
    }

    pub fn roll(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    /// Asserts that both have a path on which data arrives.
    pub fn must_be_direct(&mut self, what: &str) {
        for end in 0..2 {
            let agent = &self.ends[end].agent;
            assert!(self.ends[end].path.is_some(), "{what}: {end}: {agent:#?}");
            let arrives = self.data(end);
            let agents = self.ends.each_ref().map(|end| &end.agent);
            assert!(arrives, "{what}: {end}: {agents:#?}");
        }
    }

    /// The kind of the path of an end.
    pub fn kind(&self, end: usize) -> CandidateKind {
        self.ends[end].agent.path_pair().expect("a path").kind()
    }
}

pub fn candidate(kind: CandidateKind, address: SocketAddr) -> Candidate {
    Candidate { kind, address }
}
