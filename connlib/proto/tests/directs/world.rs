//! Clients and the hub between them, the addresses that reach each other, and time that the test advances.
//!
//! ```text
//!   a 10.0.0.1   b 10.0.0.2   c 10.0.0.3      clients at 192.0.2.1, .2 and .3
//!          └────────── hub ──────────┘        at 192.0.2.9, forwards from one to the other
//! ```

use std::{
    collections::{HashSet, VecDeque},
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use convoy_proto::config::{
    DeviceUpdate, DirectPeer, DirectStatus, Directs, PeerUpdate, Prefix, PresharedKey,
};

use crate::common::{
    Host, allow, ipv4, payload,
    weather::{Dice, Weather},
};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const C: usize = 2;
pub(crate) const HUB: usize = 3;

const UDP: u8 = 17;

/// A datagram under way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub(crate) at: Duration,
    pub(crate) from: usize,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) now: Duration,
    pub(crate) flying: VecDeque<Flying>,
    /// Pairs of hosts whose datagrams to each other are lost.
    pub(crate) cut: HashSet<(usize, usize)>,
    /// All datagrams sent so far between clients.
    pub(crate) direct: Vec<Flying>,
    pub(crate) weather: Weather,
    /// STUN server in the clients' configuration.
    pub(crate) stun: Option<SocketAddr>,
    /// Last bytes of the tunnel addresses that a hostile hub changes in what it forwards: from one to another.
    pub(crate) forged_source: Option<(u8, u8)>,
    /// Whether the hub alters, copies, redirects and replays the messages of the clients to each other.
    pub(crate) is_hub_hostile: bool,
    /// Such messages, which the hub has kept.
    kept: Vec<Vec<u8>>,
    pub(crate) dice: Dice,
}

impl World {
    /// Each of `users` knows the others as peers that are met through the hub.
    pub(crate) fn new(users: &[usize]) -> Self {
        let mut hosts: Vec<_> = [1, 2, 3, 9].map(Host::new).into();
        let now = Duration::from_secs(10_000);
        let all: Vec<_> = hosts.iter().map(Host::as_peer).collect();
        for (n, host) in hosts.iter_mut().enumerate() {
            let peers = match n {
                HUB => all[..HUB].to_vec(),
                _ => vec![PeerUpdate {
                    endpoint: Some(([192, 0, 2, 9], 51820).into()),
                    allowed_ips: vec![allow([10, 0, 0, 0].into(), 24)],
                    ..all[HUB].clone()
                }],
            };
            let update = DeviceUpdate {
                peers,
                ..DeviceUpdate::default()
            };
            host.update(update, now);
            host.node.set_port(51820, now);
        }
        let mut world = Self {
            hosts,
            now,
            flying: VecDeque::new(),
            cut: HashSet::new(),
            direct: Vec::new(),
            weather: Weather::default(),
            stun: None,
            forged_source: None,
            is_hub_hostile: false,
            kept: Vec::new(),
            dice: Dice(1),
        };
        for user in users {
            let others = users.iter().filter(|other| *other != user);
            world.set_directs(*user, &others.copied().collect::<Vec<_>>(), None);
        }
        // The hub learns where the clients are.
        for user in [A, B, C] {
            world.send(user, HUB, b"hello");
        }
        world.pass(Duration::from_secs(1));
        world.hosts[HUB].delivered.clear();
        world
    }

    pub(crate) fn set_directs(&mut self, user: usize, others: &[usize], preshared_key: Option<u8>) {
        let peers = others.iter().map(|other| DirectPeer {
            public_key: self.hosts[*other].public_key(),
            preshared_key: preshared_key.map(|byte| PresharedKey([byte; 32])),
            hub: self.hosts[HUB].public_key(),
            allowed_ips: vec![Prefix::host(self.hosts[*other].inner)],
        });
        let directs = Directs {
            own: vec![self.hosts[user].inner],
            peers: peers.collect(),
            hosts: vec![self.hosts[user].address.ip()],
            mapped: Vec::new(),
            stun: self.stun.into_iter().collect(),
        };
        self.hosts[user].node.set_directs(&directs, self.now);
        self.collect(user);
    }

    /// Sends a packet to the other's address in the tunnel.
    pub(crate) fn send(&mut self, from: usize, to: usize, text: &[u8]) {
        let (source, destination) = (self.hosts[from].inner, self.hosts[to].inner);
        self.send_as(source, from, destination, text);
    }

    pub(crate) fn send_as(
        &mut self,
        source: IpAddr,
        from: usize,
        destination: IpAddr,
        text: &[u8],
    ) {
        let packet = ipv4(source, destination, text);
        self.send_packet(from, &packet);
    }

    pub(crate) fn send_packet(&mut self, from: usize, packet: &[u8]) {
        let sent = self.hosts[from].sent_for(&[packet.to_vec()], self.now);
        self.fly(from, sent);
        self.collect(from);
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let due = self.hosts.iter().filter_map(|it| it.node.poll_timeout());
            let arriving = self.flying.iter().map(|it| it.at);
            let next = due.chain(arriving).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            for host in 0..self.hosts.len() {
                self.hosts[host].tick(self.now);
                self.collect(host);
            }
            while let Some(n) = self.flying.iter().position(|it| it.at <= self.now) {
                let arrived = self.flying.remove(n).unwrap();
                self.arrive(&arrived);
            }
        }
        self.now = end;
    }

    /// Sends a packet every 100 ms from one to the other for some time; returns how many arrived.
    pub(crate) fn talk(&mut self, from: usize, to: usize, time: Duration) -> usize {
        let end = self.now + time;
        let before = self.hosts[to].delivered.len();
        while self.now < end {
            self.send(from, to, b"data");
            self.pass(Duration::from_millis(100));
        }
        self.hosts[to].delivered.len() - before
    }

    /// Texts that have been delivered to a host since the last call.
    pub(crate) fn delivered(&mut self, host: usize) -> Vec<Vec<u8>> {
        let delivered = std::mem::take(&mut self.hosts[host].delivered);
        delivered.iter().map(|it| payload(it).to_vec()).collect()
    }

    /// The state of a host's only direct peer.
    pub(crate) fn status(&mut self, host: usize) -> DirectStatus {
        let snapshot = self.hosts[host].node.snapshot(self.now, SystemTime::now());
        snapshot.directs.into_iter().next().unwrap()
    }

    /// The state of `other` at `host`.
    pub(crate) fn status_of(&mut self, host: usize, other: usize) -> DirectStatus {
        let key = self.hosts[other].public_key();
        let snapshot = self.hosts[host].node.snapshot(self.now, SystemTime::now());
        let mut directs = snapshot.directs.into_iter();
        directs.find(|it| it.public_key == key).unwrap()
    }

    pub(crate) fn cut(&mut self, one: usize, other: usize) {
        self.cut.extend([(one, other), (other, one)]);
    }

    /// A datagram arrives from any address.
    pub(crate) fn arrive_from(&mut self, from: SocketAddr, to: usize, bytes: &[u8]) {
        self.hosts[to].receive(bytes, from, self.now);
        self.collect(to);
    }

    fn arrive(&mut self, arrived: &Flying) {
        let to = self.hosts.iter().position(|it| it.address == arrived.to);
        let Some(to) = to.filter(|to| !self.cut.contains(&(arrived.from, *to))) else {
            return;
        };
        let from = self.hosts[arrived.from].address;
        self.hosts[to].receive(&arrived.bytes, from, self.now);
        if to == HUB {
            self.forward();
        }
        self.collect(to);
    }

    /// The hub's kernel sends back what is for other clients.
    fn forward(&mut self) {
        let delivered = std::mem::take(&mut self.hosts[HUB].delivered);
        for mut packet in delivered {
            if let Some((one, other)) = self.forged_source
                && packet[15] == one
            {
                packet[15] = other;
            }
            match packet[16..20] == [10, 0, 0, 9] {
                true => self.hosts[HUB].delivered.push(packet),
                false if self.is_hub_hostile && packet[9] == UDP => self.abuse(packet),
                false => self.send_packet(HUB, &packet),
            }
        }
    }

    /// A message of one client to another, at a hub that is no friend of theirs.
    fn abuse(&mut self, mut packet: Vec<u8>) {
        if self.kept.len() < 64 {
            self.kept.push(packet.clone());
        }
        let client = |dice: &mut Dice| dice.below(3) as u8 + 1;
        match self.dice.below(6) {
            0 => {
                let at = self.dice.below(packet.len() as u64 - 28) as usize;
                packet[28 + at] ^= 1 << self.dice.below(8);
            }
            1 => packet[15] = client(&mut self.dice),
            2 => packet[19] = client(&mut self.dice),
            3 => {
                let at = self.dice.below(self.kept.len() as u64) as usize;
                let kept = self.kept[at].clone();
                self.send_packet(HUB, &kept);
            }
            4 => self.send_packet(HUB, &packet.clone()),
            _ => {}
        }
        self.send_packet(HUB, &packet);
    }

    /// Takes what a host sends.
    fn collect(&mut self, from: usize) {
        let sent = self.hosts[from].take_sent(self.now);
        self.fly(from, sent);
    }

    fn fly(&mut self, from: usize, sent: Vec<(SocketAddr, Vec<u8>)>) {
        let hub = self.hosts[HUB].address;
        for (to, bytes) in sent {
            let (time, copies) = self.weather.fate(&mut self.dice);
            let at = self.now + time;
            let flying = Flying {
                at,
                from,
                to,
                bytes,
            };
            if copies > 0 && from != HUB && to != hub {
                self.direct.push(flying.clone());
            }
            self.flying.extend(vec![flying; copies]);
        }
    }
}
