//! A gateway with a socket in place of its TUN, and a scripted network outside.

mod connections;
mod echoes;
mod floods;
mod stack;

use std::{
    future::pending,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest, unix::AsyncFd},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use super::{ends::Ends, *};
use convoy_network::{
    Answer, Datagrams, Host, Kernel, Listener, Network, Stream,
    counters::{Refusal, Totals},
    peers::Peers,
    policy::Policy,
    relay::{DEFAULT_BUFFER, Method, Relay},
    shares::{Limits, Shares},
};
use convoy_packet::{
    checksum::sum,
    counters::Dropped,
    packet::{ICMPV4, Packet, TCP, UDP, seal_ipv4, write_ip_header},
    segment::{ACK, Plain, RST, SYN, Segment, Tuple, write_segment},
    vnet::VnetHeader,
};
use convoy_smoltcp::device_pair;

/// Every wait of a test ends after this time, which is longer than any limit of the gateway.
const DEADLINE: Duration = Duration::from_secs(60);
/// Address of the first peer; the second has the next one.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
/// The same of this host, which can connect from them.
const LOCAL_PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
/// Memory that a connection holds until its target has answered.
const PENDING: u32 = 1_500;

struct Scene {
    gateway: Gateway,
    outside: Arc<Outside>,
    /// The other end of the inlet.
    wire: AsyncFd<OwnedFd>,
    /// Where the namespace accepts connections, a target of peers.
    accepting: SocketAddr,
}

#[derive(Debug)]
struct Outside {
    target: Mutex<Target>,
    /// Number of requests.
    asked: AtomicUsize,
}

/// The outcome of every request.
#[derive(Clone, Copy, Debug)]
enum Target {
    Silent,
    Fails(i32),
    Is(SocketAddr),
}

impl Scene {
    fn new(target: Target) -> Self {
        Self::with(
            target,
            Limits::of(4 * PENDING, 2),
            Limits::of(2 * PENDING, 2),
        )
    }

    /// Bounds the flows, and those that are being set up.
    fn with(target: Target, flows: Limits, pending: Limits) -> Self {
        let (device, wire) = device_pair().unwrap();
        let accepting = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        accepting.set_nonblocking(true).unwrap();
        let at = accepting.local_addr().unwrap();
        let inlet = convoy_namespace::Inlet {
            device,
            listeners: vec![accepting.into()],
        };
        let inlet = Inlet::of_namespace(inlet, Arc::new(Host), 1_420).unwrap();
        let outside = Arc::new(Outside {
            target: Mutex::new(target),
            asked: AtomicUsize::new(0),
        });
        let prefixes = [
            ("10.8.0.1", 0),
            ("127.0.1.1", 0),
            ("10.8.0.2", 1),
            ("127.0.1.2", 1),
        ];
        let prefixes = prefixes.map(|(prefix, peer)| (prefix.parse().unwrap(), peer));
        let settings = Settings {
            own: vec![[10, 8, 0, 9].into()],
            peers: Peers::new(prefixes),
            policy: Policy {
                allow: vec!["127.0.0.0/8".parse().unwrap()],
                ..Policy::default()
            },
            flows,
            pending,
        };
        let relay = Relay::new(DEFAULT_BUFFER, Method::Splice);
        let network = Arc::clone(&outside);
        let gateway = Gateway::start(inlet, network, relay, settings);
        Self {
            gateway,
            outside,
            // SAFETY: the descriptor stays open for as long as it is watched, as it is owned.
            wire: unsafe { AsyncFd::register(wire) }.unwrap(),
            accepting: at,
        }
    }

    async fn send(&self, packet: &[u8]) {
        let write = |wire: &OwnedFd| Ok(rustix::io::write(wire, packet)?);
        let written = self.wire.async_io(Interest::WRITABLE, write);
        within(written).await.unwrap();
    }

    /// The next packet to a peer.
    async fn receive(&self) -> Vec<u8> {
        let mut packet = vec![0; 2_000];
        let read = |wire: &OwnedFd| Ok(rustix::io::read(wire, &mut packet)?);
        let length = within(self.wire.async_io(Interest::READABLE, read));
        let length = length.await.unwrap();
        packet.truncate(length);
        packet
    }

    /// A connection of a peer to the listener and on to the target, both of whose ends are the test's.
    async fn open(&self, target: &TcpListener) -> (TcpStream, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((LOCAL_PEER, 0).into()).unwrap();
        let ends = Ends {
            peer: socket.local_addr().unwrap(),
            target: self.accepting,
        };
        let syn = syn(ends, 7);
        self.send(&syn).await;
        assert_eq!(self.receive().await, syn);
        let near = within(socket.connect(self.accepting)).await.unwrap();
        let (far, _) = within(target.accept()).await.unwrap();
        (near, far)
    }

    fn tcp(&self) -> Totals {
        self.gateway.carried().tcp
    }

    fn taken(&self) -> [u32; 2] {
        taken(&self.gateway.shared.admission)
    }

    fn asked(&self) -> usize {
        self.outside.asked.load(Ordering::Relaxed)
    }

    async fn until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !is_so(self) {
                // Where time is paused, it goes on only while all tasks wait.
                sleep(Duration::from_millis(1)).await;
            }
        };
        within(waiting).await;
    }

    /// Waits until nobody holds anything.
    async fn until_idle(&self) {
        self.until(|scene| scene.taken() == [0, 0]).await;
    }
}

fn taken(admission: &admission::Admission) -> [u32; 2] {
    let setting_up = [&admission.pending, &admission.opening].map(Shares::taken);
    [admission.flows.taken(), setting_up.iter().sum()]
}

impl Outside {
    fn set(&self, target: Target) {
        *self.target.lock().unwrap() = target;
    }

    async fn ask(&self) -> io::Result<SocketAddr> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let target = *self.target.lock().unwrap();
        match target {
            Target::Silent => pending().await,
            Target::Fails(code) => Err(io::Error::from_raw_os_error(code)),
            Target::Is(at) => Ok(at),
        }
    }
}

impl Network for Outside {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async { Err(ErrorKind::Unsupported.into()) })
    }

    fn connect(&self, _: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async { Kernel(Host).connect(self.ask().await?).await })
    }

    fn listen(&self, _: SocketAddr) -> Answer<'_, Listener> {
        Box::pin(async { Err(ErrorKind::Unsupported.into()) })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move {
            self.ask().await?;
            Kernel(Host).datagrams(at).await
        })
    }
}

/// From a peer, by its number, to a host outside.
fn outward(peer: u8, port: u16) -> Ends {
    let [a, b, c, d] = PEER.octets();
    Ends {
        peer: ([a, b, c, d + peer], port).into(),
        target: ([198, 51, 100, 1], 7).into(),
    }
}

fn syn(ends: Ends, sequence: u32) -> Vec<u8> {
    segment(ends, SYN, sequence)
}

/// The same with data.
fn long_syn(ends: Ends, length: usize) -> Vec<u8> {
    segment_with(ends, SYN, 7, &vec![7; length])
}

fn segment(ends: Ends, flags: u8, sequence: u32) -> Vec<u8> {
    segment_with(ends, flags, sequence, &[])
}

fn segment_with(ends: Ends, flags: u8, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 60 + payload.len()];
    let tuple = Tuple {
        local: ends.peer,
        remote: ends.target,
    };
    let plain = Plain {
        flags,
        sequence,
        payload,
        ..Plain::default()
    };
    let length = write_segment(&mut packet, tuple, plain);
    packet.truncate(length);
    packet
}

/// A datagram of 16 bytes, without a checksum.
fn datagram(ends: Ends) -> Vec<u8> {
    datagram_of(ends, 16)
}

/// The same of a length.
fn datagram_of(ends: Ends, length: usize) -> Vec<u8> {
    let mut packet = vec![7; 28 + length];
    let (from, to) = (ends.peer.ip(), ends.target.ip());
    let at = write_ip_header(&mut packet, from, to, UDP, 8 + length);
    packet[at..at + 2].copy_from_slice(&ends.peer.port().to_be_bytes());
    packet[at + 2..at + 4].copy_from_slice(&ends.target.port().to_be_bytes());
    packet[at + 4..at + 6].copy_from_slice(&(8 + length as u16).to_be_bytes());
    packet[at + 6..at + 8].fill(0);
    packet
}

/// An echo request whose identifier is the port.
fn echo_request(ends: Ends) -> Vec<u8> {
    let mut packet = vec![7; 44];
    let at = write_ip_header(&mut packet, ends.peer.ip(), ends.target.ip(), ICMPV4, 24);
    packet[at..at + 8].fill(0);
    packet[at] = 8;
    packet[at + 4..at + 6].copy_from_slice(&ends.peer.port().to_be_bytes());
    let sum = !sum(&packet[at..]);
    packet[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A packet cut in two.
fn fragments(packet: &[u8], ident: u16) -> [Vec<u8>; 2] {
    let (header, payload) = packet.split_at(20);
    [(0, 0x2000, &payload[..16]), (16, 0, &payload[16..])].map(|(offset, more, part)| {
        let mut fragment = [header, part].concat();
        let length = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&length.to_be_bytes());
        fragment[4..6].copy_from_slice(&ident.to_be_bytes());
        fragment[6..8].copy_from_slice(&(more | (offset / 8_u16)).to_be_bytes());
        seal_ipv4(&mut fragment);
        fragment
    })
}

fn parsed(packet: &[u8]) -> Packet<'_> {
    Packet::parse(VnetHeader::default(), packet).unwrap()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}
