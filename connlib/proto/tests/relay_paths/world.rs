//! Clients behind NATs, the hub, the TURN server, and time that the test advances.
//!
//! ```text
//!   a 10.0.0.1   b 10.0.0.2   c 10.0.0.3     clients, each behind a NAT of its own at 203.0.113.1, .2 and .3
//!          └────── internet ──────┘          hub 192.0.2.9, which forwards; TURN server 198.51.100.1
//! ```
//! Over IPv6 the clients are 2001:db8:1::2, 2001:db8:2::2 and 2001:db8:3::2, each behind a firewall that admits only
//! answers; nothing passes from one to another.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use convoy_proto::config::{
    DeviceUpdate, DirectPeer, DirectStatus, Directs, PeerUpdate, Prefix, RelayState,
};

use crate::{
    common::{
        Host, allow, ipv4,
        weather::{Dice, Weather},
    },
    network::{HUB_V6, Nat, Stack, v6_of},
    server::{self, Has, Server},
};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const C: usize = 2;
pub(crate) const HUB: usize = 3;

/// A datagram under way.
#[derive(Clone, Debug)]
struct Flying {
    at: Duration,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) nats: [Nat; 3],
    pub(crate) stacks: [Stack; 3],
    pub(crate) server: Server,
    /// A server that clients may have as their second one.
    pub(crate) second: Server,
    pub(crate) now: Duration,
    pub(crate) weather: Weather,
    pub(crate) dice: Dice,
    /// Destinations of all datagrams of each client.
    pub(crate) sent: [Vec<SocketAddr>; 3],
    /// Further candidates that a client names, true or not.
    pub(crate) named: [Vec<SocketAddr>; 3],
    flying: VecDeque<Flying>,
    /// The outer port of a client's datagrams, by destination if the NAT is hard.
    ports: HashMap<(usize, Option<SocketAddr>), u16>,
    next_port: u16,
    /// The destinations to which a client has sent from an outer port.
    opened: HashMap<(usize, u16), Vec<SocketAddr>>,
}

impl World {
    /// Clients behind hard NATs, of which `users` know each other and `with_relay` the server.
    pub(crate) fn new(users: &[usize], with_relay: &[usize]) -> Self {
        Self::of([Stack::V4; 3], server::BOTH, users, with_relay)
    }

    /// The same with these families, and those of the server's relayed addresses. The server is reached over IPv6 if any
    /// client has nothing else.
    pub(crate) fn of(stacks: [Stack; 3], has: Has, users: &[usize], with_relay: &[usize]) -> Self {
        let hosts: Vec<_> = [1, 2, 3, 9].map(Host::new).into();
        let mut server = Server::new(match stacks.contains(&Stack::V6) {
            true => server::ADDRESS_V6.into(),
            false => server::ADDRESS.into(),
        });
        server.has = has;
        let mut world = Self {
            hosts,
            nats: [Nat::Hard; 3],
            stacks,
            server,
            second: Server::new(server::SECOND.into()),
            now: Duration::from_secs(10_000),
            weather: Weather::default(),
            dice: Dice(1),
            sent: Default::default(),
            named: Default::default(),
            flying: VecDeque::new(),
            ports: HashMap::new(),
            next_port: 20_000,
            opened: HashMap::new(),
        };
        for host in [A, B, C, HUB] {
            world.configure(host);
        }
        for user in users {
            let others: Vec<_> = users.iter().filter(|it| *it != user).copied().collect();
            world.set_directs(*user, &others);
        }
        for client in with_relay {
            world.give_relay(*client);
        }
        // The hub learns where the clients are.
        for user in [A, B, C] {
            world.send(user, HUB, b"hello");
        }
        world.pass(Duration::from_secs(1));
        world.hosts[HUB].delivered.clear();
        world
    }

    /// Gives a host its place, key and ordinary peers.
    pub(crate) fn configure(&mut self, host: usize) {
        let all: Vec<_> = self.hosts.iter().map(Host::as_peer).collect();
        let peers = match host {
            HUB => all[..HUB].to_vec(),
            _ => vec![PeerUpdate {
                endpoint: Some(match self.stacks[host] {
                    Stack::V6 => HUB_V6.into(),
                    Stack::V4 | Stack::Both => self.hosts[HUB].address,
                }),
                allowed_ips: vec![
                    allow([10, 0, 0, 0].into(), 24),
                    allow([0xfd00, 8, 0, 0, 0, 0, 0, 0].into(), 64),
                ],
                persistent_keepalive: Some(25),
                ..all[HUB].clone()
            }],
        };
        let update = DeviceUpdate {
            peers,
            ..DeviceUpdate::default()
        };
        if host != HUB {
            self.hosts[host].address = ([192, 168, host as u8 + 1, 2], 51820).into();
        }
        let now = self.now;
        self.hosts[host].update(update, now);
        self.hosts[host].node.set_port(51820, now);
    }

    pub(crate) fn give_relay(&mut self, client: usize) {
        let now = self.now;
        let relay = self.server.relay();
        self.hosts[client].node.set_relays(&[relay], now);
        self.collect(client);
    }

    /// Gives a client the second server as well.
    pub(crate) fn give_both_relays(&mut self, client: usize) {
        let now = self.now;
        let relays = [&self.server, &self.second].map(Server::relay);
        self.hosts[client].node.set_relays(&relays, now);
        self.collect(client);
    }

    pub(crate) fn set_directs(&mut self, user: usize, others: &[usize]) {
        // What a STUN server would see: of a hard NAT, the right address and a wrong port.
        let mut mapped = self.named[user].clone();
        let v4 = self.hosts[user].address.ip();
        let v6 = v6_of(user).ip();
        let hosts = match self.stacks[user] {
            Stack::V4 => vec![v4],
            Stack::V6 => vec![v6],
            Stack::Both => vec![v6, v4],
        };
        if hosts.contains(&v4) {
            mapped.push(self.outer(user, ([198, 51, 100, 9], 3478).into()));
        }
        let peers = others.iter().map(|other| DirectPeer {
            public_key: self.hosts[*other].public_key(),
            preshared_key: None,
            hub: self.hosts[HUB].public_key(),
            allowed_ips: vec![Prefix::host(self.hosts[*other].inner)],
        });
        let directs = Directs {
            own: vec![self.hosts[user].inner],
            peers: peers.collect(),
            hosts,
            mapped,
            stun: Vec::new(),
        };
        self.hosts[user].node.set_directs(&directs, self.now);
        self.collect(user);
    }

    /// Gives a client another NAT, which knows nothing of former ports.
    pub(crate) fn set_nat(&mut self, client: usize, nat: Nat) {
        self.nats[client] = nat;
        self.ports.retain(|(it, _), _| *it != client);
        self.opened.retain(|(it, _), _| *it != client);
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, text: &[u8]) {
        let (source, destination) = (self.hosts[from].inner, self.hosts[to].inner);
        self.send_packet(from, &ipv4(source, destination, text));
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

    /// Sends both ways every 100 ms; returns how many did not arrive.
    pub(crate) fn lost(&mut self, one: usize, other: usize, time: Duration) -> usize {
        let end = self.now + time;
        let count =
            |world: &Self| world.hosts[one].delivered.len() + world.hosts[other].delivered.len();
        let (before, mut sent) = (count(self), 0);
        while self.now < end {
            self.send(one, other, b"data");
            self.send(other, one, b"data");
            sent += 2;
            self.pass(Duration::from_millis(100));
        }
        // Those that were held before may have arrived, too.
        (before + sent).saturating_sub(count(self))
    }

    /// The state of `other` at `host`.
    pub(crate) fn status(&mut self, host: usize, other: usize) -> DirectStatus {
        let key = self.hosts[other].public_key();
        let snapshot = self.hosts[host].node.snapshot(self.now, SystemTime::now());
        let mut directs = snapshot.directs.into_iter();
        directs.find(|it| it.public_key == key).unwrap()
    }

    pub(crate) fn relay_state(&mut self, host: usize) -> RelayState {
        let snapshot = self.hosts[host].node.snapshot(self.now, SystemTime::now());
        snapshot.relays[0].state.clone()
    }

    /// A datagram arrives at a client from any address.
    pub(crate) fn arrive_from(&mut self, from: SocketAddr, client: usize, bytes: &[u8]) {
        self.hosts[client].receive(bytes, from, self.now);
        self.collect(client);
    }

    /// The source of a client's datagrams as the internet sees it.
    pub(crate) fn outer(&mut self, client: usize, to: SocketAddr) -> SocketAddr {
        if to.is_ipv6() {
            let own = v6_of(client);
            let opened = self.opened.entry((client, own.port())).or_default();
            opened.push(to);
            return own;
        }
        let key = (client, (self.nats[client] == Nat::Hard).then_some(to));
        let next = &mut self.next_port;
        let port = *self.ports.entry(key).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.opened.entry((client, port)).or_default().push(to);
        ([203, 0, 113, client as u8 + 1], port).into()
    }

    /// The host that a datagram reaches, if NATs let it pass.
    fn host_at(&self, from: SocketAddr, to: SocketAddr) -> Option<usize> {
        if to == self.hosts[HUB].address || to == HUB_V6.into() {
            return Some(HUB);
        }
        let is_at = |it: &usize| {
            let ips = [[203, 0, 113, *it as u8 + 1].into(), v6_of(*it).ip()];
            ips.contains(&to.ip())
        };
        let client = [A, B, C].into_iter().find(is_at)?;
        if [A, B, C].map(v6_of).contains(&from) {
            return None;
        }
        let opened = self.opened.get(&(client, to.port()))?;
        opened.contains(&from).then_some(client)
    }

    fn arrive(&mut self, arrived: &Flying) {
        let Flying {
            from, to, bytes, ..
        } = arrived;
        let now = self.now;
        let at_server = [&mut self.server, &mut self.second]
            .into_iter()
            .find(|it| it.is_at(*to))
            .map(|it| it.take(*from, *to, bytes, now));
        if let Some(sent) = at_server {
            return sent
                .into_iter()
                .for_each(|(from, to, bytes)| self.take_off(from, to, bytes));
        }
        let Some(host) = self.host_at(*from, *to) else {
            return;
        };
        self.hosts[host].receive(bytes, *from, self.now);
        if host == HUB {
            self.forward();
        }
        self.collect(host);
    }

    /// The hub's kernel sends back what is for other clients.
    fn forward(&mut self) {
        for packet in std::mem::take(&mut self.hosts[HUB].delivered) {
            match packet[16..20] == [10, 0, 0, 9] {
                true => self.hosts[HUB].delivered.push(packet),
                false => self.send_packet(HUB, &packet),
            }
        }
    }

    /// Takes what a host sends.
    pub(crate) fn collect(&mut self, from: usize) {
        let sent = self.hosts[from].take_sent(self.now);
        self.fly(from, sent);
    }

    fn fly(&mut self, from: usize, sent: Vec<(SocketAddr, Vec<u8>)>) {
        for (to, bytes) in sent {
            let source = match from {
                HUB if to.is_ipv6() => HUB_V6.into(),
                HUB => self.hosts[HUB].address,
                client => {
                    self.sent[client].push(to);
                    if !self.stacks[client].has(to) {
                        continue;
                    }
                    self.outer(client, to)
                }
            };
            self.take_off(source, to, bytes);
        }
    }

    fn take_off(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let (time, copies) = self.weather.fate(&mut self.dice);
        let at = self.now + time;
        let flying = Flying {
            at,
            from,
            to,
            bytes,
        };
        self.flying.extend(vec![flying; copies]);
    }
}
