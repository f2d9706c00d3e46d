//! A TURN server over UDP, in a thread: the library's state machine, its sockets in a namespace of the lab.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use convoy_lab::Namespace;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use turn_server_proto::{
    api::{SocketAllocateError, TurnServerApi as _, TurnServerPollRet},
    server::TurnServer as State,
    stun::{
        Instant as Time,
        agent::Transmit,
        types::{
            attribute::{ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms, Realm},
            message::{Message, MessageWriteVec},
            prelude::{AttributeStaticType as _, MessageWrite as _, MessageWriteExt as _},
        },
    },
    types::{AddressFamily, TransportType, prelude::DelayedTransmitBuild as _},
};

/// How often the server looks whether it is to end.
const LOOK: u16 = 20;

/// Credentials that it takes.
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "correct-horse-battery";

/// Ends when dropped.
pub(crate) struct TurnServer {
    /// Datagrams of clients, with ChannelData.
    pub(crate) relayed: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TurnServer {
    /// Listens at `address` in `place`; peers see addresses with the same IP.
    pub(crate) fn start(place: &Namespace, address: SocketAddr) -> Self {
        // A former one may still be about to close its socket.
        let bind = || UdpSocket::bind(address).ok();
        let socket = place.run(|| convoy_lab::eventually(crate::scene::DEADLINE, bind));
        let socket = socket.unwrap().expect("the address is free");
        socket.set_nonblocking(true).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let relayed = Arc::new(AtomicUsize::new(0));
        let mut state = State::new(TransportType::Udp, address, "example.org".to_owned());
        state.add_user(USER.to_owned(), PASSWORD.to_owned());
        let mut serving = Serving {
            state,
            address,
            sockets: vec![socket],
            begun: Instant::now(),
            relayed: Arc::clone(&relayed),
        };
        let flag = Arc::clone(&is_over);
        let place = place.clone();
        let serve = move || {
            // Sockets of allocations are the namespace's as well.
            let served = place.run(|| {
                while !flag.load(Ordering::Relaxed) {
                    serving.step().unwrap();
                }
            });
            served.unwrap();
        };
        Self {
            relayed,
            is_over,
            thread: Some(thread::spawn(serve)),
        }
    }
}

impl Drop for TurnServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Serving {
    state: State,
    address: SocketAddr,
    /// The first one is the clients', the others are those of allocations.
    sockets: Vec<UdpSocket>,
    begun: Instant,
    relayed: Arc<AtomicUsize>,
}

impl Serving {
    fn now(&self) -> Time {
        let nanos = self.begun.elapsed().as_nanos();
        Time::from_nanos(i64::try_from(nanos).unwrap())
    }

    fn step(&mut self) -> io::Result<()> {
        let mut ready: Vec<_> = self
            .sockets
            .iter()
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut ready, PollTimeout::from(LOOK))?;
        drop(ready);
        let mut buffer = [0; 2048];
        for n in 0..self.sockets.len() {
            while let Ok((length, from)) = self.sockets[n].recv_from(&mut buffer) {
                let to = self.sockets[n].local_addr()?;
                if n == 0 && (0x40..=0x4F).contains(&buffer[0]) {
                    self.relayed.fetch_add(1, Ordering::Relaxed);
                }
                let received = Transmit::new(&buffer[..length], TransportType::Udp, from, to);
                let now = self.now();
                if let Some(sent) = self.state.recv(received, now) {
                    let (from, to) = (sent.from, sent.to);
                    let bytes = with_algorithms(sent.data.build());
                    self.send(from, to, &bytes);
                }
                self.advance();
            }
        }
        self.advance();
        Ok(())
    }

    fn advance(&mut self) {
        let now = self.now();
        if let TurnServerPollRet::AllocateSocket {
            transport,
            listen_addr,
            client_addr,
            allocation_transport,
            family,
        } = self.state.poll(now)
        {
            let is_own = (family == AddressFamily::IPV4) == self.address.is_ipv4();
            let socket = UdpSocket::bind((self.address.ip(), 0)).ok();
            let socket = socket.filter(|_| is_own);
            let address = socket.map(|socket| {
                socket.set_nonblocking(true).unwrap();
                let address = socket.local_addr().unwrap();
                self.sockets.push(socket);
                address
            });
            let address = address.ok_or(SocketAllocateError::AddressFamilyNotSupported);
            self.state.allocated_socket(
                transport,
                listen_addr,
                client_addr,
                allocation_transport,
                family,
                address,
                now,
            );
        }
        while let Some(sent) = self.state.poll_transmit(now) {
            self.send(sent.from, sent.to, &sent.data);
        }
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let mut sockets = self.sockets.iter();
        let is_it = |it: &&UdpSocket| it.local_addr().is_ok_and(|address| address == from);
        if let Some(socket) = sockets.find(is_it) {
            // A full socket and an ICMP error of before lose a datagram, as a network may.
            let _ = socket.send_to(bytes, to);
        }
    }
}

/// Repairs the library's second refusal of a client: it lacks the algorithms that its nonce promises.
fn with_algorithms(bytes: Vec<u8>) -> Vec<u8> {
    let Ok(message) = Message::from_bytes(&bytes) else {
        return bytes;
    };
    let code = message.attribute::<ErrorCode>();
    let is_refusal = code.is_ok_and(|it| it.code() == ErrorCode::UNAUTHORIZED);
    if !is_refusal || message.has_attribute(PasswordAlgorithms::TYPE) {
        return bytes;
    }
    let (kind, id) = (message.get_type(), message.transaction_id());
    let mut repaired = Message::builder(kind, id, MessageWriteVec::new());
    let code = message.attribute::<ErrorCode>().unwrap();
    let nonce = message.attribute::<Nonce>().unwrap();
    let realm = message.attribute::<Realm>().unwrap();
    let algorithms = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
    let algorithms = PasswordAlgorithms::new(&algorithms);
    repaired.add_attribute(&code).unwrap();
    repaired.add_attribute(&nonce).unwrap();
    repaired.add_attribute(&realm).unwrap();
    repaired.add_attribute(&algorithms).unwrap();
    repaired.finish()
}
