//! A bad network: a UDP relay between two ends that drops, duplicates, holds back, delays and alters
//! datagrams as a seed determines.
//!
//! ```text
//!   left ── UDP ──▶ ┌ lane ─────────────────────────────────────┐ ── UDP ──▶ right
//!                   │ fate of the n-th datagram → queue → census│
//!        ◀── UDP ── └───────────────────────────────────── lane ┘ ◀── UDP ──
//! ```
//!
//! Each end takes the relay for the other end. Decisions need no socket and no clock: [`Fates`] derives
//! them from the seed for the n-th datagram of a direction, a lane holds waiting datagrams, and
//! [`Census`] classifies those sent on, as a WireGuard receiver must.

mod census;
mod fates;
mod lane;

use std::{
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use convoy_lab::Namespace;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::socket::{MsgFlags, recv, setsockopt, sockopt},
};

pub(crate) use census::Census;
pub(crate) use fates::{Direction, Fates, Impairments};
use lane::Lane;
pub(crate) use lane::Tally;

/// Datagrams to take from one socket before turning to the other.
const BURST: usize = 64;
/// Socket buffer in bytes, for datagrams that arrive while the relay gets no CPU.
const SOCKET_BUFFER: usize = 16 * 1024 * 1024;
/// How often the relay checks whether to end.
const END_CHECK: Duration = Duration::from_millis(20);

/// One side of a relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// The relay's address towards this end.
    pub(crate) local: SocketAddr,
    /// The end's address.
    pub(crate) end: SocketAddr,
}

/// A relay that runs on its own thread until dropped.
pub(crate) struct Relay {
    lanes: Arc<Mutex<[Lane; 2]>>,
    seed: u64,
}

impl Relay {
    /// Starts a relay in `namespace`, as root, with these impairments.
    pub(crate) fn start(
        namespace: &Namespace,
        left: Side,
        right: Side,
        seed: u64,
        impairments: &Impairments,
    ) -> Self {
        let sockets = namespace.run(|| [socket(left), socket(right)]).unwrap();
        let lane = |direction| Lane::new(Fates::new(seed, direction, impairments.clone()));
        let lanes = Arc::new(Mutex::new(Direction::BOTH.map(lane)));
        let relays = Arc::downgrade(&lanes);
        thread::spawn(move || {
            while let Some(lanes) = relays.upgrade() {
                forward(&sockets, &lanes);
            }
        });
        Self { lanes, seed }
    }

    /// Changes the impairments of datagrams that arrive from now on, in both directions.
    pub(crate) fn impair(&self, impairments: &Impairments) {
        for lane in &mut *lock(&self.lanes) {
            lane.fates.impairments = impairments.clone();
        }
    }

    /// Sends on what is held back in `direction`, as no more is to come.
    pub(crate) fn release_held(&self, direction: Direction) {
        lock(&self.lanes)[direction as usize].release_held();
    }

    /// Counts of the datagrams in `direction`.
    pub(crate) fn tally(&self, direction: Direction) -> Tally {
        lock(&self.lanes)[direction as usize].tally()
    }

    /// The seed that every decision follows from.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }
}

/// A socket that receives only from its own end.
fn socket(side: Side) -> UdpSocket {
    let socket = UdpSocket::bind(side.local).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER).unwrap();
    setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER).unwrap();
    socket.connect(side.end).unwrap();
    socket
}

/// Waits until a datagram has arrived or is due, takes a burst from each side, and sends those due.
fn forward(sockets: &[UdpSocket; 2], lanes: &Mutex<[Lane; 2]>) {
    let due = lock(lanes).iter().filter_map(Lane::poll_timeout).min();
    wait(sockets, due);
    let mut lanes = lock(lanes);
    for (lane, from) in lanes.iter_mut().zip(sockets) {
        take_burst(from, lane);
    }
    for (lane, to) in lanes.iter_mut().zip(sockets.iter().rev()) {
        while let Some(datagram) = lane.poll_datagram(Instant::now()) {
            // An end that is absent or has no room causes a loss like any other, which it counts itself.
            let _ = to.send(&datagram);
        }
    }
}

fn wait(sockets: &[UdpSocket; 2], due: Option<Instant>) {
    let left = due.map_or(END_CHECK, |due| {
        due.saturating_duration_since(Instant::now())
    });
    let mut fds = sockets
        .each_ref()
        .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
    // Interrupted: read the sockets anyway.
    let _ = ppoll(&mut fds, Some(left.min(END_CHECK).into()), None);
}

fn take_burst(from: &UdpSocket, lane: &mut Lane) {
    let mut buffer = [0; 65_535];
    for _ in 0..BURST {
        match recv(from.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => lane.handle_datagram(&buffer[..length], Instant::now()),
            // Nobody was there for an earlier datagram.
            Err(Errno::ECONNREFUSED | Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn lock(lanes: &Mutex<[Lane; 2]>) -> MutexGuard<'_, [Lane; 2]> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}
