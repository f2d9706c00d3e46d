//! A TURN server (RFC 8656) over UDP, TCP and TLS, for tests; over UDP also a STUN server (RFC 8489).
//!
//! Tests start it, and benches take its certificates; the program never does. It bounds nothing and logs nothing: whoever
//! reaches it may use up this machine.
//!
//! One thread serves all. The state is that of `turn-server-proto`, to which every client is one by UDP: this takes the
//! frames of streams out and pads those that it sends.

mod client;
mod identity;
mod repair;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use turn_server_proto::{
    api::{SocketAllocateError, Transmit, TurnServerApi as _, TurnServerPollRet},
    server::TurnServer,
    types::{
        AddressFamily, Instant as ServerInstant, TransportType, prelude::DelayedTransmitBuild as _,
    },
};

use client::Client;
pub use identity::RelayIdentity;

/// How often the server looks whether it is to end, in milliseconds.
const LOOK: u16 = 20;
/// Datagrams taken from a socket before others have their turn.
const DATAGRAMS_AT_ONCE: usize = 64;

/// How clients reach a server.
#[derive(Clone, Debug)]
pub enum RelayTransport {
    /// By UDP.
    Udp,
    /// By TCP.
    Tcp,
    /// By TLS, with this certificate.
    Tls(RelayIdentity),
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The transport to it.
    pub transport: RelayTransport,
    /// The only user, and the user's password.
    pub user: (String, String),
    /// Peers at the first address are really at the second: clients that cannot reach the first have nothing but the
    /// server.
    pub alias: Option<(IpAddr, IpAddr)>,
    /// Further address at which it relays, of the other family than its own.
    pub other: Option<IpAddr>,
}

/// A TURN server; ends when dropped.
#[derive(Debug)]
pub struct RelayServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// Datagrams that it has relayed, both ways.
    relayed: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RelayServer {
    /// Listens in the network namespace of this thread.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(address: SocketAddr, options: &RelayOptions) -> io::Result<Self> {
        let front = Front::bind(address, &options.transport)?;
        let address = front.address()?;
        let mut state = TurnServer::new(TransportType::Udp, address, "lab.test".to_owned());
        let (user, password) = options.user.clone();
        state.add_user(user, password);
        let (relayed, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut serving = Serving {
            address,
            state,
            front,
            clients: Vec::new(),
            sockets: Vec::new(),
            options: options.clone(),
            relayed: Arc::clone(&relayed),
            began: Instant::now(),
        };
        let flag = Arc::clone(&is_over);
        let serve = move || {
            while !flag.load(Ordering::Relaxed) {
                serving.wait();
                serving.step();
            }
        };
        Ok(Self {
            address,
            relayed,
            is_over,
            thread: Some(thread::spawn(serve)),
        })
    }

    /// Number of datagrams relayed so far, both ways.
    pub fn relayed(&self) -> u64 {
        self.relayed.load(Ordering::Relaxed)
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It does not panic.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// The socket that clients know.
enum Front {
    Udp(UdpSocket),
    Stream(TcpListener, Option<RelayIdentity>),
}

impl Front {
    fn bind(address: SocketAddr, transport: &RelayTransport) -> io::Result<Self> {
        let identity = match transport {
            RelayTransport::Udp => return udp(address).map(Self::Udp),
            RelayTransport::Tcp => None,
            RelayTransport::Tls(identity) => Some(identity.clone()),
        };
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Stream(listener, identity))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Stream(listener, _) => listener.local_addr(),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Stream(listener, _) => listener.as_fd(),
        }
    }
}

struct Serving {
    address: SocketAddr,
    state: TurnServer,
    front: Front,
    clients: Vec<Client>,
    /// Sockets of allocations.
    sockets: Vec<(SocketAddr, UdpSocket)>,
    options: RelayOptions,
    relayed: Arc<AtomicU64>,
    began: Instant,
}

impl Serving {
    fn wait(&self) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = vec![readable(self.front.fd())];
        polled.extend(self.sockets.iter().map(|(_, it)| readable(it.as_fd())));
        for client in &self.clients {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, client.has_waiting());
            polled.push(PollFd::new(client.socket().as_fd(), flags));
        }
        // Whatever it says, each socket is tried.
        let _ = poll(&mut polled, PollTimeout::from(LOOK));
    }

    fn step(&mut self) {
        self.take_from_front();
        for n in 0..self.clients.len() {
            self.clients[n].read();
            while let Some(frame) = self.clients[n].next_frame() {
                let from = self.clients[n].address;
                self.take(frame, from, self.address);
            }
        }
        let mut buffer = [0; 65_535];
        for n in 0..self.sockets.len() {
            for _ in 0..DATAGRAMS_AT_ONCE {
                let (to, socket) = &self.sockets[n];
                let Ok((len, from)) = socket.recv_from(&mut buffer) else {
                    break;
                };
                let to = *to;
                self.relayed.fetch_add(1, Ordering::Relaxed);
                self.take(buffer[..len].to_vec(), self.told(from), to);
            }
        }
        self.advance();
        self.clients.retain_mut(|it| {
            it.write();
            it.is_open
        });
    }

    fn take_from_front(&mut self) {
        for _ in 0..DATAGRAMS_AT_ONCE {
            let mut buffer = [0; 65_535];
            match &self.front {
                Front::Udp(socket) => {
                    let Ok((len, from)) = socket.recv_from(&mut buffer) else {
                        return;
                    };
                    self.take(buffer[..len].to_vec(), from, self.address);
                }
                Front::Stream(listener, identity) => {
                    let Ok((stream, address)) = listener.accept() else {
                        return;
                    };
                    self.clients
                        .extend(Client::new(stream, address, identity.as_ref()).ok());
                }
            }
        }
    }

    /// Lets the state take a datagram, or a frame, and sends its answer.
    fn take(&mut self, data: Vec<u8>, from: SocketAddr, to: SocketAddr) {
        let transmit = Transmit::new(data, TransportType::Udp, from, to);
        let answer = self.state.recv(transmit, self.now());
        if let Some(answer) = answer {
            // The library addresses answers to requests of STUN to the server itself.
            let is_misdirected = answer.to == self.address;
            let to = if is_misdirected { from } else { answer.to };
            self.send(answer.from, to, &answer.data.build());
        }
    }

    fn advance(&mut self) {
        let mut wanted = Vec::new();
        loop {
            match self.state.poll(self.now()) {
                TurnServerPollRet::AllocateSocket {
                    transport,
                    listen_addr,
                    client_addr,
                    allocation_transport,
                    family,
                } => {
                    let at = (transport, listen_addr, client_addr, allocation_transport);
                    wanted.push((at, family, self.open(family)));
                }
                TurnServerPollRet::SocketClose { listen_addr, .. } => {
                    self.sockets.retain(|(it, _)| *it != listen_addr);
                }
                TurnServerPollRet::WaitUntil(_)
                | TurnServerPollRet::TcpConnect { .. }
                | TurnServerPollRet::TcpClose { .. } => break,
            }
        }
        // The library forgets a client whose last answer is a refusal.
        wanted.sort_by_key(|(.., opened)| opened.is_ok());
        for ((transport, listens, client, allocation), family, opened) in wanted {
            let now = self.now();
            self.state
                .allocated_socket(transport, listens, client, allocation, family, opened, now);
        }
        while let Some(transmit) = self.state.poll_transmit(self.now()) {
            self.send(transmit.from, transmit.to, &transmit.data);
        }
    }

    /// Opens the socket of an allocation.
    fn open(&mut self, family: AddressFamily) -> Result<SocketAddr, SocketAllocateError> {
        let is_ipv4 = family == AddressFamily::IPV4;
        let mut own = [self.address.ip()].into_iter().chain(self.options.other);
        let own = own.find(|it| it.is_ipv4() == is_ipv4);
        let own = own.ok_or(SocketAllocateError::AddressFamilyNotSupported)?;
        let socket = udp(SocketAddr::new(own, 0));
        let bound = socket.and_then(|it| Ok((it.local_addr()?, it)));
        let full = SocketAllocateError::InsufficientCapacity;
        let (address, socket) = bound.map_err(|_| full)?;
        self.sockets.push((address, socket));
        Ok(address)
    }

    /// Sends to a client, or from an allocation to a peer.
    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if from != self.address {
            if let Some((_, socket)) = self.sockets.iter().find(|(it, _)| *it == from) {
                self.relayed.fetch_add(1, Ordering::Relaxed);
                let _ = socket.send_to(bytes, self.real(to));
            }
            return;
        }
        let bytes = repair::with_algorithms(bytes);
        match &self.front {
            Front::Udp(socket) => drop(socket.send_to(&bytes, to)),
            Front::Stream(..) => {
                if let Some(client) = self.clients.iter_mut().find(|it| it.address == to) {
                    client.send(&bytes);
                }
            }
        }
    }

    fn told(&self, address: SocketAddr) -> SocketAddr {
        replaced(address, self.options.alias.map(|(told, real)| (real, told)))
    }

    fn real(&self, address: SocketAddr) -> SocketAddr {
        replaced(address, self.options.alias)
    }

    fn now(&self) -> ServerInstant {
        let since = self.began.elapsed().as_nanos();
        ServerInstant::from_nanos(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Puts the second IP in place of the first.
fn replaced(mut address: SocketAddr, ips: Option<(IpAddr, IpAddr)>) -> SocketAddr {
    if let Some((former, new)) = ips
        && address.ip() == former
    {
        address.set_ip(new);
    }
    address
}
