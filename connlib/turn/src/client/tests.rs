//! Clients against the server of `turn-server-proto`, under simulated time.

use turn_client_proto::{
    stun::{
        Instant,
        agent::Transmit,
        types::{
            attribute::{ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms, Realm},
            message::{IntegrityAlgorithm, LongTermCredentials, Message, MessageWriteVec},
            prelude::{AttributeStaticType, MessageWrite, MessageWriteExt},
        },
    },
    types::{
        AddressFamily, TransportType,
        attribute::{
            AdditionalAddressFamily, ChannelNumber as Number, RequestedAddressFamily,
            XorPeerAddress,
        },
        message::{ALLOCATE, CHANNEL_BIND},
        prelude::DelayedTransmitBuild,
    },
};
use turn_server_proto::{
    api::{SocketAllocateError, TurnServerApi, TurnServerPollRet},
    server::TurnServer,
};

use std::collections::HashMap;

use super::*;
use crate::{families::Families, server::Transport};

mod channels;
mod families;
mod fuzz;
mod hostile;
mod lifetime;
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
            return self.client.handle_message(&refusal, self.now);
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

    /// Requires that no channel leads to two peers (RFC 8656 §12).
    fn note_channels(&mut self, message: &[u8]) {
        let Ok(message) = Message::from_bytes(message) else {
            return;
        };
        let now = self.now;
        if message.has_method(ALLOCATE) {
            self.bound.clear();
        }
        if let Ok(number) = message.attribute::<Number>()
            && message.has_method(CHANNEL_BIND)
        {
            let peer = message.attribute::<XorPeerAddress>().unwrap();
            let peer = peer.addr(message.transaction_id());
            let is_over = |at: Duration| at + Duration::from_secs(900) <= now;
            let former = self.bound.insert(number.channel(), (peer, now));
            let is_free = former.is_none_or(|(known, at)| known == peer || is_over(at));
            assert!(is_free, "{former:?} loses its channel to {peer}");
        }
    }

    /// The refusal of a signed request that names IPv6 by a server that has never heard of it.
    fn refusal_of_old(&self, message: &[u8]) -> Option<Vec<u8>> {
        let request = Message::from_bytes(message).ok().filter(|_| self.is_old)?;
        let names_family = request.has_attribute(AdditionalAddressFamily::TYPE)
            || request.has_attribute(RequestedAddressFamily::TYPE);
        let realm = request.attribute::<Realm>().ok().filter(|_| names_family)?;
        let credentials = LongTermCredentials::new("alice".to_owned(), "secret".to_owned());
        let key = credentials.to_key(realm.realm().to_owned()).into();
        let mut refusal = Message::builder_error(&request, MessageWriteVec::new());
        let code = ErrorCode::builder(ErrorCode::ADDRESS_FAMILY_NOT_SUPPORTED);
        refusal.add_attribute(&code.build().unwrap()).unwrap();
        let signed = refusal.add_message_integrity(&key, IntegrityAlgorithm::Sha1);
        signed.unwrap();
        Some(refusal.finish())
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

    /// Answers what the server asks of its sockets. It forgets a client whose last answer is a refusal.
    fn give_addresses(&mut self) {
        let mut wanted = Vec::new();
        while let TurnServerPollRet::AllocateSocket { family, .. } =
            self.server.poll(instant(self.now))
        {
            wanted.push((self.socket_of(family == AddressFamily::IPV4), family));
        }
        wanted.sort_by_key(|(socket, _)| socket.is_ok());
        for (socket, family) in wanted {
            self.server.allocated_socket(
                TransportType::Udp,
                self.server_address,
                self.client_address,
                TransportType::Udp,
                family,
                socket,
                instant(self.now),
            );
        }
    }

    fn socket_of(&mut self, is_ipv4: bool) -> Result<SocketAddr, SocketAllocateError> {
        self.relayed_port += 1;
        let (has_family, address) = match is_ipv4 {
            true => (self.has.v4, [198, 51, 100, 1].into()),
            false => (self.has.v6, peer_v6().ip()),
        };
        let lacks = SocketAllocateError::AddressFamilyNotSupported;
        let refusal = self.refuses.or((!has_family).then_some(lacks));
        let address = SocketAddr::new(address, self.relayed_port);
        refusal.map_or(Ok(self.gives.unwrap_or(address)), Err)
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

fn fresh_server(address: SocketAddr) -> TurnServer {
    let mut server = TurnServer::new(TransportType::Udp, address, "example.org".to_owned());
    server.add_user("alice".to_owned(), "secret".to_owned());
    server
}

/// Repairs the server's second refusal of a client: it lacks the algorithms that its nonce promises.
fn with_algorithms(bytes: Vec<u8>) -> Vec<u8> {
    let message = Message::from_bytes(&bytes).unwrap();
    let code = message.attribute::<ErrorCode>();
    let is_refusal = code.is_ok_and(|it| it.code() == ErrorCode::UNAUTHORIZED);
    if !is_refusal || message.has_attribute(PasswordAlgorithms::TYPE) {
        return bytes;
    }
    let mut repaired = Message::builder(
        message.get_type(),
        message.transaction_id(),
        MessageWriteVec::new(),
    );
    let code = message.attribute::<ErrorCode>().unwrap();
    let nonce = message.attribute::<Nonce>().unwrap();
    let realm = message.attribute::<Realm>().unwrap();
    let algorithms = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
    repaired.add_attribute(&code).unwrap();
    repaired.add_attribute(&nonce).unwrap();
    repaired.add_attribute(&realm).unwrap();
    repaired
        .add_attribute(&PasswordAlgorithms::new(&algorithms))
        .unwrap();
    repaired.finish()
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
