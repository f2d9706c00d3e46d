//! A gateway behind a stack, with targets that answer when the test says.

#[path = "../../../smoltcp/src/tests/wire.rs"]
mod wire;

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use convoy_network::{
    NameServers,
    counters::Refusal,
    own::Own,
    peers::Peers,
    policy::Policy,
    relay::{DEFAULT_BUFFER, Method, Relay},
    shares::Limits,
};
use convoy_packet::{
    counters::Dropped,
    packet::{ICMPV4, ICMPV6, Packet, UDP},
    segment::{ACK, RST, SYN, Segment, Tuple},
    vnet::VnetHeader,
};
use convoy_smoltcp::{MAX_FLOWS, Settings as StackSettings, Stack};
use tokio::{io::DuplexStream, sync::Semaphore};

use super::*;
use wire::{Wire, packet, parsed, scene, segment};

/// Addresses of the stack, and of a peer.
const A: &str = "10.9.0.1";
const B: &str = "10.9.0.2";
const A6: &str = "fd09::1";
const B6: &str = "fd09::2";

fn stack(device: OwnedFd, addresses: [&str; 2], mtu: u16) -> Stack {
    let bits = |address: &IpAddr| if address.is_ipv4() { 24 } else { 64 };
    let addresses = addresses.map(|it| it.parse().unwrap());
    let settings = StackSettings {
        addresses: addresses.map(|it| (it, bits(&it))).to_vec(),
        mtu,
        names: NameServers::default(),
        peers: Arc::new(Peers::new([B, B6].map(|it| (it.parse().unwrap(), 0)))),
    };
    Stack::start(device, settings).unwrap()
}

/// Two stacks, each at one end of a device.
fn joined(mtu: u16) -> (Stack, Stack) {
    let (a, b) = device_pair().unwrap();
    (stack(a, [A, A6], mtu), stack(b, [B, B6], mtu))
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}

/// Waits until something is so.
async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    within(waiting).await;
}

/// Targets outside.
const OUTSIDE: [(&str, &str); 2] = [(B, "198.51.100.7"), (B6, "2001:db8:51::7")];
/// Ports of targets that connect, refuse, and cannot be reached.
const OPEN: u16 = 80;
const CLOSED: u16 = 81;
const UNREACHABLE: u16 = 82;

/// More than any test has.
const MANY: u32 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_syn_waits_until_its_target_is_connected() {
    let place = Place::new(MANY);
    for (count, (peer, target)) in OUTSIDE.into_iter().enumerate() {
        place.syn(peer, 1, target, OPEN);
        until(|| place.asked() == count + 1).await;
        // Again, as there is no answer; there is none either before that of the datagram behind it.
        place.syn(peer, 1, target, OPEN);
        let (forbidden, icmp) = match peer {
            B => ("169.254.0.1", ICMPV4),
            _ => ("fe80::1", ICMPV6),
        };
        let datagram = [0, 9, 0, 80, 0, 9, 0, 0, 42];
        place.wire.send(&packet(peer, forbidden, UDP, &datagram, 6));
        let first = place.wire.receive();
        let first = Packet::parse(VnetHeader::default(), &first).unwrap();
        assert_eq!(first.protocol, icmp);
        place.outside.gate.add_permits(1);
        let answer = place.wire.receive();
        let from = Packet::parse(VnetHeader::default(), &answer)
            .unwrap()
            .source;
        assert_eq!(from, at(target, 0).ip());
        let (_, answer) = parsed(&answer);
        assert_eq!((answer.flags, answer.acknowledged), (SYN | ACK, 8));
        place.complete(peer, target, &answer);
        until(|| place.gateway.carried().tcp.opened == count as u64 + 1).await;
        assert_eq!(place.asked(), count + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_outside_is_rst_inside_and_unreachable_is_icmp() {
    let place = Place::new(MANY);
    place.outside.gate.add_permits(4);
    for (peer, target) in OUTSIDE {
        place.syn(peer, 1, target, CLOSED);
        let answer = place.answer_to(1);
        assert_eq!((answer.flags, answer.acknowledged), (RST | ACK, 8));
        assert_eq!(answer.source_port, CLOSED);
        place.syn(peer, 1, target, UNREACHABLE);
        let answer = place.wire.receive();
        let answer = Packet::parse(VnetHeader::default(), &answer).unwrap();
        let (own, kind) = match peer {
            B => (A, [3, 1]),
            _ => (A6, [1, 3]),
        };
        assert_eq!(answer.source, at(own, 0).ip());
        assert_eq!(answer.payload()[..2], kind);
        let syn = segment(ends(peer, 1, target, UNREACHABLE), SYN, 7, 0);
        assert_eq!(answer.payload()[8..], syn);
    }
    for reason in [Refusal::TargetRefused, Refusal::Unreachable] {
        until(|| place.gateway.carried().tcp.refused(reason) == 2).await;
    }
    assert_eq!(place.stack.flows(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_pass_both_ways_and_each_way_ends_by_itself() {
    let place = Place::joined();
    place.outside.gate.add_permits(100);
    for (_, target) in OUTSIDE {
        let peer = place.peer.as_ref().unwrap();
        let mut stream = within(peer.connect(at(target, OPEN))).await.unwrap();
        let mut outer = place.outside.accepted();
        stream.write_all(b"question").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut question = Vec::new();
        within(outer.read_to_end(&mut question)).await.unwrap();
        assert_eq!(question, b"question");
        outer.write_all(b"answer").await.unwrap();
        outer.shutdown().await.unwrap();
        let mut answer = Vec::new();
        within(stream.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(answer, b"answer");
        let refused = within(peer.connect(at(target, CLOSED))).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let no_way = within(peer.connect(at(target, UNREACHABLE))).await;
        assert_eq!(no_way.unwrap_err().kind(), io::ErrorKind::HostUnreachable);
    }
    until(|| place.stack.flows() == 0).await;
    assert_eq!(place.gateway.carried().tcp.opened, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_a_peer_does_not_complete_are_bounded_by_its_share() {
    let place = Place::new(3);
    place.outside.gate.add_permits(100);
    let (peer, target) = OUTSIDE[0];
    let answers: Vec<_> = (1..=4)
        .map(|port| {
            place.syn(peer, port, target, OPEN);
            place.answer_to(port)
        })
        .collect();
    let flags: Vec<_> = answers.iter().map(|it| it.flags).collect();
    assert_eq!(flags, [SYN | ACK, SYN | ACK, SYN | ACK, RST | ACK]);
    let refused = || place.gateway.carried().tcp.refused(Refusal::TooManyOfPeer);
    assert_eq!(refused(), 1);
    // One that is completed makes room.
    place.complete(peer, target, &answers[0]);
    until(|| place.gateway.carried().tcp.opened == 1).await;
    place.syn(peer, 5, target, OPEN);
    assert_eq!(place.answer_to(5).flags, SYN | ACK);
    assert_eq!(refused(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_full_table_has_no_place_for_is_a_counted_drop() {
    let place = Place::new(MANY);
    place.outside.gate.add_permits(MANY as usize);
    let (peer, target) = OUTSIDE[0];
    for port in 1..=MAX_FLOWS as u16 {
        place.syn(peer, port, target, OPEN);
        let answer = place.answer_to(port);
        assert_eq!(answer.flags, SYN | ACK);
        place.complete(peer, target, &answer);
    }
    assert_eq!(place.stack.flows(), MAX_FLOWS);
    place.syn(peer, 9_999, target, OPEN);
    until(|| place.stack.counters().dropped(Dropped::TooManyFlows) == 1).await;
    assert_eq!(place.asked(), MAX_FLOWS + 1);
}

/// A gateway at a wire, or behind the stack of a peer.
struct Place {
    gateway: Gateway,
    stack: Stack,
    wire: Wire,
    peer: Option<Stack>,
    outside: Arc<Outside>,
}

impl Place {
    /// With this many connections at once that are not established.
    fn new(pending: u32) -> Self {
        let (stack, wire) = scene();
        Self::with(stack, wire, None, pending)
    }

    fn joined() -> Self {
        let (stack, peer) = joined(1420);
        let (_, nothing) = scene();
        Self::with(stack, nothing, Some(peer), MANY)
    }

    fn with(stack: Stack, wire: Wire, peer: Option<Stack>, pending: u32) -> Self {
        let limits = |most| Limits {
            total: most,
            peer: most,
            peers: 1,
        };
        let peers = ["10.9.0.0/24", "fd09::/64"].map(|it| (it.parse().unwrap(), 0));
        let settings = Settings {
            own: [A, A6].map(|it| it.parse().unwrap()).to_vec(),
            peers: Peers::new(peers),
            policy: Policy {
                own: Own::fixed([]),
                ..Policy::default()
            },
            flows: limits(MANY),
            pending: limits(pending),
        };
        let outside = Arc::new(Outside {
            gate: Semaphore::new(0),
            asked: AtomicUsize::new(0),
            accepted: Mutex::default(),
        });
        let inlet = Inlet::of_stack(&stack).unwrap();
        let relay = Relay::new(DEFAULT_BUFFER, Method::Copy);
        let network = Arc::clone(&outside) as Arc<dyn Network>;
        let gateway = Gateway::start(inlet, network, relay, settings);
        Self {
            gateway,
            stack,
            wire,
            peer,
            outside,
        }
    }

    fn syn(&self, peer: &str, port: u16, target: &str, to: u16) {
        self.wire
            .send(&segment(ends(peer, port, target, to), SYN, 7, 0));
    }

    /// The next segment to a port of a peer.
    fn answer_to(&self, port: u16) -> Segment {
        loop {
            let (_, answer) = parsed(&self.wire.receive());
            // Another one may have been repeated meanwhile.
            if answer.destination_port == port {
                return answer;
            }
        }
    }

    /// Completes the handshake of a peer's connection.
    fn complete(&self, peer: &str, target: &str, answer: &Segment) {
        let ends = ends(peer, answer.destination_port, target, answer.source_port);
        let next = answer.sequence.wrapping_add(1);
        self.wire.send(&segment(ends, ACK, 8, next));
    }

    /// Counts the connections to targets.
    fn asked(&self) -> usize {
        self.outside.asked.load(Ordering::Relaxed)
    }
}

/// Answers as the target's port says, each time for a permit.
#[derive(Debug)]
struct Outside {
    gate: Semaphore,
    asked: AtomicUsize,
    accepted: Mutex<Vec<DuplexStream>>,
}

impl Outside {
    /// The target's end of the last connection.
    fn accepted(&self) -> DuplexStream {
        self.accepted.lock().unwrap().pop().unwrap()
    }
}

impl Network for Outside {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        unimplemented!("peers give addresses")
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            self.gate.acquire().await.unwrap().forget();
            match to.port() {
                CLOSED => Err(io::ErrorKind::ConnectionRefused.into()),
                UNREACHABLE => Err(io::ErrorKind::HostUnreachable.into()),
                _ => {
                    let (ours, theirs) = tokio::io::duplex(1_024);
                    self.accepted.lock().unwrap().push(theirs);
                    Ok(Stream::Other(Box::new(ours)))
                }
            }
        })
    }

    fn listen(&self, _: SocketAddr) -> Answer<'_, Listener> {
        unimplemented!("nobody listens outside")
    }

    fn datagrams(&self, _: SocketAddr) -> Answer<'_, Datagrams> {
        unimplemented!("no test sends any")
    }
}

fn ends(peer: &str, port: u16, target: &str, to: u16) -> Tuple {
    Tuple {
        local: at(peer, port),
        remote: at(target, to),
    }
}
