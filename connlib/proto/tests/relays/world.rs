#![allow(unreachable_pub, reason = "as in the other worlds")]

//! A node `a` with TURN, its peers without, the server, and the network between them.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use convoy_proto::config::{
    Authorities, DeviceUpdate, Password, PeerUpdate, Relay, RelayTransport, Snapshot,
};
use turn_client_proto::{
    stun::{
        agent::Transmit,
        types::{
            attribute::{ErrorCode, MessageIntegrity, Nonce, Realm},
            message::{Message, MessageWriteVec},
            prelude::{AttributeStaticType, MessageWrite, MessageWriteExt},
        },
    },
    types::{AddressFamily, TransportType, prelude::DelayedTransmitBuild},
};
use turn_server_proto::{
    api::{SocketAllocateError, TurnServerApi, TurnServerPollRet},
    server::TurnServer,
};

use crate::{
    common::{Host, SECOND, ipv4, payload},
    turn::{fresh_server, instant, with_algorithms},
};

pub const PASSWORD: &str = "hunter2-of-alice";

/// Datagrams that pass between hosts; those to and from the server always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firewall {
    Open,
    OnlyTurn,
    /// Only the way from the peers to `a` is blocked.
    NoneBack,
    /// Only this peer is reached.
    Only(SocketAddr),
}

pub struct World {
    pub a: Host,
    pub peers: Vec<Host>,
    pub server: TurnServer,
    pub server_address: SocketAddr,
    pub now: Duration,
    pub firewall: Firewall,
    /// The relayed address that the server gives instead of its own.
    pub gives: Option<SocketAddr>,
    /// Another server, which answers requests without a signature alone.
    pub challenges: Option<SocketAddr>,
    /// Whether the server has no address of IPv6.
    pub lacks_ipv6: bool,
    /// Datagrams that the server got from `a`.
    pub at_server: usize,
    /// ChannelData that `a` has sent.
    pub relayed_data: usize,
    /// Packets of [`Self::talk`] that did not arrive.
    pub lost: usize,
    /// Datagrams of the last call of [`Self::a_sends_all`].
    pub last_sent: Vec<(SocketAddr, Vec<u8>)>,
    /// Destinations of the server and of `a`.
    pub targets: Vec<SocketAddr>,
    /// Datagrams on their way: sender, receiver, payload.
    wire: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    relayed_port: u16,
}

pub fn relay(server: SocketAddr) -> Relay {
    Relay {
        host: "turn.example.org".to_owned(),
        server,
        transport: RelayTransport::Udp,
        user: "alice".to_owned(),
        password: Password(PASSWORD.to_owned()),
        authorities: Authorities::default(),
    }
}

impl World {
    /// Nobody has said anything yet. `a` has two peers, of which it knows the endpoints.
    pub fn new(firewall: Firewall) -> Self {
        let server_address = SocketAddr::from(([198, 51, 100, 1], 3478));
        let mut world = Self {
            a: Host::new(1),
            peers: vec![Host::new(2), Host::new(3)],
            server: fresh_server(server_address, PASSWORD),
            server_address,
            now: Duration::from_secs(10_000),
            firewall,
            gives: None,
            challenges: None,
            lacks_ipv6: false,
            at_server: 0,
            relayed_data: 0,
            lost: 0,
            last_sent: Vec::new(),
            targets: Vec::new(),
            wire: VecDeque::new(),
            relayed_port: 50_000,
        };
        for peer in &mut world.peers {
            peer.set_peer(world.a.as_peer(), world.now);
            let mut update = peer.as_peer();
            update.endpoint = Some(peer.address);
            world.a.set_peer(update, world.now);
        }
        let relays = [relay(server_address)];
        world.a.node.set_relays(&relays, world.now);
        world
    }

    /// The first peer's data is relayed.
    pub fn relayed() -> Self {
        let mut world = Self::new(Firewall::OnlyTurn);
        world.a_sends(0, b"hello");
        world.run(Duration::from_secs(8));
        assert_eq!(world.received(0), [b"hello"]);
        world
    }

    pub fn restart_server(&mut self) {
        self.server = fresh_server(self.server_address, PASSWORD);
    }

    pub fn move_peer(&mut self, n: usize, address: SocketAddr) {
        self.peers[n].address = address;
        let mut update = self.peers[n].as_peer();
        update.endpoint = Some(address);
        self.a.set_peer(update, self.now);
    }

    /// Sets persistent keepalives between `a` and its first peer, in both directions.
    pub fn keep_alive(&mut self, seconds: u16) {
        let mut of_peer = PeerUpdate::new(self.peers[0].public_key());
        of_peer.persistent_keepalive = Some(seconds);
        self.a.set_peer(of_peer, self.now);
        let mut of_a = PeerUpdate::new(self.a.public_key());
        of_a.persistent_keepalive = Some(seconds);
        self.peers[0].set_peer(of_a, self.now);
    }

    pub fn remove_peer(&mut self, n: usize) {
        let mut peer = PeerUpdate::new(self.peers[n].public_key());
        peer.remove = true;
        let update = DeviceUpdate {
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        self.a.update(update, self.now);
    }

    pub fn a_sends(&mut self, n: usize, payload: &[u8]) {
        self.a_sends_all(n, &[payload.to_vec()]);
    }

    pub fn a_sends_all(&mut self, n: usize, payloads: &[Vec<u8>]) {
        let (from, to) = (self.a.inner, self.peers[n].inner);
        let packets: Vec<_> = payloads.iter().map(|it| ipv4(from, to, it)).collect();
        self.last_sent = self.a.sent_for(&packets, self.now);
        for (to, bytes) in self.last_sent.clone() {
            self.wire.push_back((self.a.address, to, bytes));
        }
        self.carry();
    }

    pub fn b_sends(&mut self, n: usize, payload: &[u8]) {
        let packet = ipv4(self.peers[n].inner, self.a.inner, payload);
        let peer = &mut self.peers[n];
        for (to, bytes) in peer.sent_for(&[packet], self.now) {
            self.wire.push_back((peer.address, to, bytes));
        }
        self.carry();
    }

    /// Sends a packet each way every second, and counts those that do not arrive.
    pub fn talk(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            let before = self.received(0).len() + self.a_received().len();
            self.a_sends(0, b"ping");
            self.b_sends(0, b"pong");
            self.run(SECOND);
            let after = self.received(0).len() + self.a_received().len();
            self.lost += before + 2 - after;
        }
    }

    pub fn received(&self, n: usize) -> Vec<&[u8]> {
        self.peers[n]
            .delivered
            .iter()
            .map(|it| payload(it))
            .collect()
    }

    pub fn a_received(&self) -> Vec<&[u8]> {
        self.a.delivered.iter().map(|it| payload(it)).collect()
    }

    pub fn snapshot(&mut self) -> Snapshot {
        self.a.node.snapshot(self.now, SystemTime::now())
    }

    pub fn only_peers_were_sent_to(&self) {
        let mut known: Vec<_> = self.peers.iter().map(|it| it.address).collect();
        known.extend([self.server_address, self.a.address]);
        let is_stranger = |to: &&SocketAddr| !known.contains(to) && !self.is_relayed(**to);
        assert_eq!(self.targets.iter().find(is_stranger), None);
    }

    /// Lets time pass, from one due time to the next.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        loop {
            self.carry();
            let nodes = self.peers.iter().chain([&self.a]);
            let due = nodes.filter_map(|it| it.node.poll_timeout()).min();
            let Some(due) = due.filter(|it| *it <= end) else {
                break;
            };
            self.now = due.max(self.now);
            self.a.tick(self.now);
            for peer in &mut self.peers {
                peer.tick(self.now);
            }
            steps += 1;
            assert!(steps < 20_000, "a node spins");
        }
        self.now = end;
    }

    /// A datagram that a test puts on the wire.
    pub fn put(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.wire.push_back((from, to, bytes.to_vec()));
        self.carry();
    }

    /// Carries datagrams until there are none.
    fn carry(&mut self) {
        loop {
            self.collect();
            self.serve();
            let Some((from, to, bytes)) = self.wire.pop_front() else {
                return;
            };
            self.targets.push(to);
            if Some(to) == self.challenges {
                let challenge = challenge(&bytes);
                self.wire.extend(challenge.map(|it| (to, from, it)));
            } else if to == self.server_address || self.is_relayed(to) {
                self.at_server(from, to, bytes);
            } else if self.passes(from, to) {
                self.deliver(from, to, &bytes);
            }
        }
    }

    fn collect(&mut self) {
        for host in self.peers.iter_mut().chain([&mut self.a]) {
            for (to, bytes) in host.take_sent(self.now) {
                self.wire.push_back((host.address, to, bytes));
            }
        }
    }

    fn passes(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let is_server =
            from == self.server_address || self.is_relayed(from) || Some(from) == self.challenges;
        is_server
            || match self.firewall {
                Firewall::Open => true,
                Firewall::OnlyTurn => false,
                Firewall::NoneBack => to != self.a.address,
                Firewall::Only(peer) => [from, to].contains(&peer),
            }
    }

    fn is_relayed(&self, address: SocketAddr) -> bool {
        (50_000..=self.relayed_port).contains(&address.port())
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        if to == self.a.address {
            let bytes = with_algorithms(bytes);
            self.a.receive(&bytes, from, now);
        }
        if let Some(peer) = self.peers.iter_mut().find(|it| it.address == to) {
            peer.receive(bytes, from, now);
        }
    }

    fn at_server(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        if from == self.a.address {
            self.at_server += 1;
            self.relayed_data += usize::from((0x40..=0x4F).contains(&bytes[0]));
        }
        let transmit = Transmit::new(bytes, TransportType::Udp, from, to);
        if let Some(reply) = self.server.recv(transmit, instant(self.now)) {
            self.wire
                .push_back((reply.from, reply.to, reply.data.build()));
        }
    }

    fn serve(&mut self) {
        loop {
            if let TurnServerPollRet::AllocateSocket {
                transport,
                listen_addr,
                client_addr,
                allocation_transport,
                family,
            } = self.server.poll(instant(self.now))
            {
                self.relayed_port += 1;
                let address = match family {
                    AddressFamily::IPV4 => self.server_address.ip(),
                    _ => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x99].into(),
                };
                let address = SocketAddr::new(address, self.relayed_port);
                let address = self.gives.unwrap_or(address);
                let is_lacking = self.lacks_ipv6 && address.is_ipv6();
                let lacks = SocketAllocateError::AddressFamilyNotSupported;
                let socket = (!is_lacking).then_some(address).ok_or(lacks);
                self.server.allocated_socket(
                    transport,
                    listen_addr,
                    client_addr,
                    allocation_transport,
                    family,
                    socket,
                    instant(self.now),
                );
            }
            let Some(transmit) = self.server.poll_transmit(instant(self.now)) else {
                return;
            };
            self.wire
                .push_back((transmit.from, transmit.to, transmit.data));
        }
    }
}

/// Refuses a request that is not signed.
fn challenge(request: &[u8]) -> Option<Vec<u8>> {
    let request = Message::from_bytes(request).ok()?;
    if request.has_attribute(MessageIntegrity::TYPE) {
        return None;
    }
    let fits = "it fits a message";
    let mut refusal = Message::builder_error(&request, MessageWriteVec::new());
    let code = ErrorCode::builder(ErrorCode::UNAUTHORIZED).build();
    let realm = Realm::new("example.org");
    let nonce = Nonce::new("nonce");
    refusal.add_attribute(&code.expect("a code")).expect(fits);
    refusal.add_attribute(&realm.expect("a realm")).expect(fits);
    refusal.add_attribute(&nonce.expect("a nonce")).expect(fits);
    Some(refusal.finish())
}
