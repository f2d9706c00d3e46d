//! Many peers of one daemon, in the test's own process.

use std::{
    fmt::Write,
    io::ErrorKind,
    net::{Ipv4Addr, UdpSocket},
    time::{Duration, Instant, SystemTime},
};

use convoy_lab::wireguard::Underlay;
use convoy_proto::{
    Datagram, Node, PacketSink, Planner,
    config::{DeviceUpdate, PeerUpdate, PrivateKey, PublicKey},
    noise::Identity,
};

use crate::scene::{Scene, output_of};

/// How long all handshakes may take: under load, the first attempt brings only a cookie.
const PATIENCE: Duration = Duration::from_secs(30);
/// The network of the crowd's addresses: under load, each address has a rate limit of its own.
const NETWORK: &str = "10.77.0.0/16";

/// Another one than the left daemon's, which is bound to all addresses.
const PORT: u16 = 51_821;

/// Peers of the right daemon of a scene, beside the left one, each with its own address.
pub(super) struct Crowd {
    members: Vec<Member>,
    start: Instant,
}

struct Member {
    node: Node,
    socket: UdpSocket,
    public_key: PublicKey,
}

impl Crowd {
    pub(super) fn new(scene: &Scene, count: usize) -> Self {
        let (left, hub) = (&scene.left, &scene.right);
        let local = ["route", "add", "local", NETWORK, "dev", "lo"];
        output_of(&left.namespace, "ip", &local);
        let gateway = left.outer(Underlay::V4).ip();
        let link = hub.namespace.link();
        link.add_route_through(NETWORK, gateway).unwrap();
        let mut to_hub = PeerUpdate::new(PublicKey(hub.keys.public));
        to_hub.endpoint = Some(hub.outer(Underlay::V4));
        to_hub.persistent_keepalive = Some(25);
        let members = || (0..count).map(|n| Member::new(n, &to_hub)).collect();
        Self {
            members: left.namespace.run(members).unwrap(),
            start: Instant::now(),
        }
    }

    /// A request that adds the members as peers.
    pub(super) fn as_peers(&self) -> String {
        self.request("")
    }

    /// A request after which the daemon begins the handshakes, as soon as its link is up.
    pub(super) fn as_peers_to_keep_alive(&self) -> String {
        self.request("persistent_keepalive_interval=25\n")
    }

    fn request(&self, with: &str) -> String {
        let mut request = "set=1\n".to_owned();
        for member in &self.members {
            let key: String = member.public_key.0.map(|b| format!("{b:02x}")).concat();
            write!(request, "public_key={key}\n{with}").unwrap();
        }
        request + "\n"
    }

    /// All members begin a handshake at once.
    pub(super) fn begin(&mut self) {
        let now = self.now();
        for member in &mut self.members {
            member.node.handle_timeout(now);
        }
        self.members.iter_mut().for_each(Member::send);
    }

    /// Returns when each member has completed this number of handshakes.
    pub(super) fn run_until_all_have_handshakes(&mut self, handshakes: u64) {
        let patience = Instant::now() + PATIENCE;
        let is_behind = |member: &mut Member| member.node.counters().handshakes < handshakes;
        while self.members.iter_mut().any(is_behind) {
            let behind = self.members.iter_mut().map(is_behind);
            assert!(
                Instant::now() < patience,
                "{} members wait for handshake {handshakes}",
                behind.filter(|b| *b).count()
            );
            let now = self.now();
            for member in &mut self.members {
                member.receive(now);
                member.node.handle_timeout(now);
                member.send();
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Member {
    fn new(n: usize, hub: &PeerUpdate) -> Self {
        let [.., high, low] = (n as u32).to_be_bytes();
        let socket = UdpSocket::bind((Ipv4Addr::new(10, 77, high, low), PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let key = PrivateKey(
            [[0x77, high, low].as_slice(), &[1; 29]]
                .concat()
                .try_into()
                .unwrap(),
        );
        let public_key = Identity::new(&key).public_key();
        let update = DeviceUpdate {
            private_key: Some(Some(key)),
            peers: vec![hub.clone()],
            ..DeviceUpdate::default()
        };
        let mut node = Node::default();
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        node.set_wall_clock(since_epoch);
        node.apply(Planner::default().plan(update), Duration::ZERO);
        Self {
            node,
            socket,
            public_key,
        }
    }

    fn send(&mut self) {
        while let Some(control) = self.node.poll_control(true) {
            let sent = self
                .socket
                .send_to(&control.datagram, control.destination.to);
            // What a full queue loses is sent again.
            assert!(sent.is_ok() || sent.is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
        }
    }

    fn receive(&mut self, now: Duration) {
        let mut buffer = [0; 2_048];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let datagram = Datagram {
                bytes: &buffer[..len],
                from,
                arrival: None,
                ecn: 0,
            };
            let handled = self.node.handle_inbound([datagram], now, &mut NoPackets);
            assert_eq!(handled.datagrams, 1);
        }
    }
}

/// Keepalives carry no packets: the plaintext is empty.
struct NoPackets;

impl PacketSink for NoPackets {
    fn reserve(&mut self, len: usize) -> bool {
        len == 0
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        std::iter::once(Default::default())
    }

    fn slot(&mut self, _: usize) -> Option<&mut [u8]> {
        Some(Default::default())
    }

    fn commit(&mut self, _: usize, _: usize) {
        unreachable!("nobody sends packets to the crowd");
    }

    fn release(&mut self) {}
}
