//! Datagrams through the tunnel without a pause, to see how long it carries none.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use convoy_lab::eventually;

use super::world::World;
use crate::scene::DEADLINE;

const PORT: u16 = 7_007;
/// Between two datagrams.
const PAUSE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(50);

/// Datagrams to a host behind the tunnel and their echoes; ends when dropped.
pub(super) struct Stream {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    sent: AtomicU64,
    echoes: Mutex<Vec<Echo>>,
}

#[derive(Clone, Copy)]
struct Echo {
    number: u64,
    at: Instant,
}

impl Stream {
    /// Returns once it flows.
    pub(super) fn start(world: &World, to: &str) -> Self {
        let to = SocketAddr::new(to.parse().unwrap(), PORT);
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Not connected: each datagram leaves by the route of the moment.
        let bind = |to: SocketAddr| UdpSocket::bind(to).unwrap();
        let sender = world.client.run(|| bind((any, 0).into())).unwrap();
        let answerer = world.server.run(|| bind(to)).unwrap();
        for socket in [&sender, &answerer] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let receiver = sender.try_clone().unwrap();
        let state = Arc::new(State::default());
        let [a, b, c] = std::array::from_fn(|_| Arc::clone(&state));
        let stream = Self {
            state,
            threads: vec![
                thread::spawn(move || a.send(&sender, to)),
                thread::spawn(move || b.receive(&receiver)),
                thread::spawn(move || c.answer(&answerer)),
            ],
        };
        stream.flows();
        stream
    }

    /// Waits for the echo of a datagram that is not sent yet.
    pub(super) fn flows(&self) {
        let sent = self.state.sent.load(Ordering::Relaxed);
        let is_answered = || {
            let echoes = self.state.echoes.lock().unwrap();
            let is_newer = echoes.last().is_some_and(|echo| echo.number > sent);
            is_newer.then_some(())
        };
        assert!(eventually(DEADLINE, is_answered).is_some(), "no echo");
    }

    /// Requires that none was ever without an echo for so long.
    pub(super) fn never_paused(streams: &[Self], limit: Duration) {
        let gaps: Vec<_> = streams.iter().map(Self::longest_gap).collect();
        eprintln!("without packets for {gaps:?}");
        assert!(gaps.iter().all(|gap| *gap < limit), "{gaps:?}");
    }

    /// The longest time without an echo, from the first one until now.
    fn longest_gap(&self) -> Duration {
        let echoes = self.state.echoes.lock().unwrap();
        let times: Vec<_> = echoes.iter().map(|echo| echo.at).collect();
        let next = times[1..].iter().copied().chain([Instant::now()]);
        let gaps = times.iter().zip(next).map(|(at, next)| next - *at);
        gaps.max().unwrap()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl State {
    fn send(&self, socket: &UdpSocket, to: SocketAddr) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.sent.fetch_add(1, Ordering::Relaxed);
            // Without a route it cannot be sent.
            let _ = socket.send_to(&number.to_be_bytes(), to);
            thread::sleep(PAUSE);
        }
    }

    fn receive(&self, socket: &UdpSocket) {
        let mut bytes = [0; 8];
        while !self.is_over.load(Ordering::Relaxed) {
            // An error is a timeout, or reports an earlier datagram as lost.
            if let Ok((8, _)) = socket.recv_from(&mut bytes) {
                self.echoes.lock().unwrap().push(Echo {
                    number: u64::from_be_bytes(bytes),
                    at: Instant::now(),
                });
            }
        }
    }

    fn answer(&self, socket: &UdpSocket) {
        let mut bytes = [0; 8];
        while !self.is_over.load(Ordering::Relaxed) {
            if let Ok((length, sender)) = socket.recv_from(&mut bytes) {
                let _ = socket.send_to(&bytes[..length], sender);
            }
        }
    }
}
