//! Clients against the server of `turn-server-proto`, under simulated time.

use std::collections::HashMap;

use turn_client_proto::{
    stun::{
        Instant,
        agent::Transmit,
        types::{
            attribute::ErrorCode,
            message::{Message, MessageWriteVec},
            prelude::{MessageWrite, MessageWriteExt},
        },
    },
    types::{AddressFamily, TransportType, prelude::DelayedTransmitBuild},
};
use turn_server_proto::{
    api::{SocketAllocateError, TurnServerApi, TurnServerPollRet},
    server::TurnServer,
};

use self::server::{fresh_server, with_algorithms};
use super::*;
use crate::{families::Families, server::Transport};

mod channels;
mod families;
mod fuzz;
mod hostile;
mod lifetime;
mod server;
mod streams;

const START: Duration = Duration::from_secs(1000);

fn peer(n: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, n], 51_820))
}

fn peer_v6() -> SocketAddr {
    SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 51_820))
}

fn credentials(password: &str) -> Credentials {
    Credentials::new("alice".to_owned(), password.to_owned()).unwrap()
}

/// Fate of a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    Lost,
}

/// A client, a server, and the network between them.
struct World {
    client: Client,
    server: TurnServer,
    now: Duration,
    client_address: SocketAddr,
    server_address: SocketAddr,
    relayed_port: u16,
    refuses: Option<SocketAllocateError>,
    /// Families of which the server has addresses.
    has: Families,
    /// Whether the server refuses requests that name a family at all.
    is_old: bool,
    /// Peers by the channels of the present allocation, and when they were last bound.
    bound: HashMap<u16, (SocketAddr, Duration)>,
    /// The relayed address that the server gives instead of its own.
    gives: Option<SocketAddr>,
    fate: fn(usize) -> Fate,
    /// Messages of the client so far.
    sent: usize,
    events: Vec<Event>,
    /// Datagrams that the server has sent to peers.
    at_peers: Vec<(SocketAddr, Vec<u8>)>,
}

impl World {
    /// Requires that a datagram to a peer arrives there.
    fn must_reach(&mut self, peer: SocketAddr) {
        assert!(self.client.channel(peer).is_some(), "{:?}", self.events);
        self.send(peer, b"heard");
        assert_eq!(self.at_peers.last(), Some(&(peer, b"heard".to_vec())));
    }

    fn new() -> Self {
        let server_address = SocketAddr::from(([198, 51, 100, 1], 3478));
        let server = Server {
            address: server_address,
            transport: Transport::Udp,
        };
        Self {
            client: Client::new(server, credentials("secret")),
            server: fresh_server(server_address),
            now: START,
            client_address: SocketAddr::from(([192, 0, 2, 7], 40_000)),
            server_address,
            relayed_port: 50_000,
            refuses: None,
            has: Families::BOTH,
            is_old: false,
            bound: HashMap::new(),
            gives: None,
            fate: |_| Fate::Arrives,
            sent: 0,
            events: Vec::new(),
            at_peers: Vec::new(),
        }
    }

    fn with_peers(peers: &[SocketAddr]) -> Self {
        let mut world = Self::new();
        world.client.set_peers(peers, world.now).unwrap();
        world
    }

    fn ready() -> Self {
        let mut world = Self::with_peers(&[peer(1)]);
        world.run(Duration::from_secs(5));
        assert!(
            world.client.channel(peer(1)).is_some(),
            "{:?}",
            world.events
        );
        world.events.clear();
        world
    }

    /// Restarts the server, which forgets everything.
    fn restart_server(&mut self) {
        self.server = fresh_server(self.server_address);
    }

    /// Lets time pass, from one due time to the next.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        loop {
            self.exchange();
            let due = self.client.poll_timeout().filter(|at| *at < end);
            let Some(due) = due else { break };
            assert!(due > self.now || steps < 10_000, "the client spins");
            self.now = due.max(self.now);
            self.client.handle_timeout(self.now);
            steps += 1;
        }
        assert!(steps < 10_000, "{steps} wake-ups in {time:?}");
        self.now = end;
        self.client.handle_timeout(self.now);
        self.exchange();
    }

    /// Carries messages to and fro until there are none.
    fn exchange(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(message) = self.client.poll_transmit() {
                quiet = false;
                self.sent += 1;
                if (self.fate)(self.sent) == Fate::Arrives {
                    self.at_server(&message);
                }
            }
            quiet &= !self.serve();
            while let Some(event) = self.client.poll_event() {
                self.events.push(event);
            }
            if quiet {
                return;
            }
        }
    }

    fn at_server(&mut self, message: &[u8]) {
        self.note_channels(message);
        if let Some(refusal) = self.refusal_of_old(message) {
            self.client.handle_message(&refusal, self.now);
            return;
        }
        let transmit = Transmit::new(
            message.to_vec(),
            TransportType::Udp,
            self.client_address,
            self.server_address,
        );
        if let Some(reply) = self.server.recv(transmit, instant(self.now)) {
            let (to, bytes) = (reply.to, reply.data.build());
            self.deliver(to, bytes);
        }
    }

    fn serve(&mut self) -> bool {
        let mut any = false;
        loop {
            self.give_addresses();
            let Some(transmit) = self.server.poll_transmit(instant(self.now)) else {
                return any;
            };
            any = true;
            self.deliver(transmit.to, transmit.data);
        }
    }

    fn deliver(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if to == self.client_address {
            assert_eq!(crate::parse(&bytes), None, "no peer sends here");
            let bytes = with_algorithms(bytes);
            self.client.handle_message(&bytes, self.now);
        } else {
            self.at_peers.push((to, bytes));
        }
    }

    /// Sends a datagram to a peer as the event loop does.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        match self.client.channel(to) {
            Some(channel) => {
                self.client.note_sent(self.now);
                let mut frame = crate::header(channel, datagram.len()).to_vec();
                frame.extend_from_slice(datagram);
                self.at_server(&frame);
            }
            None => self.client.hold(to, datagram, self.now),
        }
    }
}

fn instant(now: Duration) -> Instant {
    Instant::from_nanos(i64::try_from(now.as_nanos()).unwrap())
}

#[test]
fn a_peer_gets_its_channel_and_what_was_held_for_it_goes_out() {
    let mut world = World::with_peers(&[peer(1)]);
    assert_eq!(world.client.phase(), Phase::Allocating);
    world.send(peer(1), b"initiation");
    world.run(Duration::from_secs(1));
    let Phase::Ready(relayed) = world.client.phase() else {
        panic!("{:?}", world.events);
    };
    let relayed = relayed.reaching(peer(1)).unwrap();
    assert_eq!(world.events, [Event::Ready(relayed), Event::Bound(peer(1))]);
    let (to, held) = world.client.poll_held(world.now).unwrap();
    assert_eq!((to, held.as_slice()), (peer(1), &b"initiation"[..]));
    world.send(to, &held);
    assert_eq!(world.at_peers, [(peer(1), b"initiation".to_vec())]);
    let channel = world.client.channel(peer(1)).unwrap();
    assert_eq!(world.client.peer(channel), Some(peer(1)));
}

#[test]
fn only_peers_that_were_named_are_ever_sent_to() {
    let mut world = World::ready();
    world.send(peer(2), b"to a stranger");
    assert_eq!(world.client.take_dropped(), 1);
    world.run(Duration::from_secs(10));
    assert_eq!(world.client.poll_held(world.now), None);
    assert_eq!(world.at_peers, []);
    let numbers = (0x4000..=0x4FFF).filter_map(crate::ChannelNumber::new);
    let known: Vec<_> = numbers.filter_map(|it| world.client.peer(it)).collect();
    assert_eq!(known, [peer(1)]);
}

#[test]
fn peers_of_both_families_get_an_address_each() {
    let mut world = World::with_peers(&[peer(1), peer_v6()]);
    world.run(Duration::from_secs(5));
    assert!(
        world.client.channel(peer(1)).is_some(),
        "{:?}",
        world.events
    );
    assert!(world.client.channel(peer_v6()).is_some());
    for peer in [peer(1), peer_v6()] {
        world.must_reach(peer);
        let channel = world.client.channel(peer).unwrap();
        assert_eq!(world.client.peer(channel), Some(peer));
    }
}

#[test]
fn a_peer_added_later_gets_a_channel_of_its_own() {
    let mut world = World::ready();
    world
        .client
        .set_peers(&[peer(1), peer(2)], world.now)
        .unwrap();
    world.run(Duration::from_secs(1));
    let channels = [1, 2].map(|n| world.client.channel(peer(n)).unwrap());
    assert_ne!(channels[0], channels[1]);
    world.client.set_peers(&[peer(2)], world.now).unwrap();
    assert_eq!(world.client.channel(peer(1)), None);
    assert_eq!(world.client.channel(peer(2)), Some(channels[1]));
    assert_eq!(world.client.peer(channels[0]), None);
}

#[test]
fn more_peers_than_the_bound_are_refused_and_change_nothing() {
    let mut world = World::ready();
    let many: Vec<_> = (0..=MAX_PEERS).map(|n| peer(n as u8)).collect();
    assert_eq!(world.client.set_peers(&many, world.now), Err(TooManyPeers));
    assert!(world.client.channel(peer(1)).is_some());
    world
        .client
        .set_peers(&many[..MAX_PEERS], world.now)
        .unwrap();
    world.run(Duration::from_secs(30));
    let bound = many[..MAX_PEERS]
        .iter()
        .filter(|it| world.client.channel(**it).is_some());
    assert_eq!(bound.count(), MAX_PEERS);
}

#[test]
fn without_peers_nothing_is_sent_and_nothing_is_due() {
    let mut world = World::ready();
    world.client.set_peers(&[], world.now).unwrap();
    world.exchange();
    assert_eq!(world.client.phase(), Phase::Idle);
    assert_eq!(world.client.poll_timeout(), None);
    let sent = world.sent;
    world.run(Duration::from_secs(7200));
    assert_eq!(world.sent, sent);
}

#[test]
fn losses_delay_the_allocation_and_no_more() {
    let mut world = World::new();
    world.fate = |n| {
        if n % 2 == 1 {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    };
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_secs(10));
    assert!(
        world.client.channel(peer(1)).is_some(),
        "{:?}",
        world.events
    );
}

#[test]
fn a_user_name_that_no_message_can_carry_is_refused() {
    let long = "x".repeat(509);
    let refused = Credentials::new(long.clone(), "p".to_owned());
    assert_eq!(refused.unwrap_err(), crate::InvalidCredentials::UserName);
    let refused = Credentials::new("u".to_owned(), long);
    assert_eq!(refused.unwrap_err(), crate::InvalidCredentials::Password);
    let longest = Credentials::new("x".repeat(508), "p".to_owned()).unwrap();
    let mut world = World::new();
    world.client = Client::new(world.client.server(), longest);
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_secs(5));
    assert!(!format!("{:?}", credentials("secret")).contains("secret"));
}
