//! A bad network: a UDP relay between two hosts that drops, repeats, holds back, delays and alters
//! datagrams, as a seed decides.
//!
//! ```text
//!   left ── UDP ──▶ ┌ lane ─────────────────────────────────────┐ ── UDP ──▶ right
//!                   │ fate of the n-th datagram → queue → census│
//!        ◀── UDP ── └───────────────────────────────────── lane ┘ ◀── UDP ──
//! ```
//!
//! Each end takes the relay for the other one. Decisions need no socket and no clock: [`Fates`] makes
//! them for the n-th datagram of a direction from the seed alone, a lane holds datagrams that wait,
//! and [`Census`] classifies those that went on, as a WireGuard receiver must.
//!
//! Deliberately left out: rates and queues of a bottleneck, and more than two ends.

mod census;
mod fates;
mod lane;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};

use crate::{error::LabError, namespace::Namespace};
pub use census::Census;
pub use fates::{Direction, Fates, Impairments, Passage};
use lane::Lane;
pub use lane::Tally;

/// Datagrams taken from a socket before the other one is read.
const BURST: usize = 64;
/// Bytes that wait in a socket while the relay is off the CPU.
const SOCKET_BUFFER: usize = 16 * 1024 * 1024;
/// How often the relay checks whether it is to end.
const END_CHECK: Duration = Duration::from_millis(20);

/// One side of a relay.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// The relay's address towards this end.
    pub local: SocketAddr,
    /// The end's address.
    pub end: SocketAddr,
}

/// A relay that runs on a thread of its own until it is dropped.
pub struct Relay {
    lanes: Arc<Mutex<[Lane; 2]>>,
    seed: u64,
}

impl Relay {
    /// Starts a relay in `namespace`, as root, with these impairments.
    pub fn start(
        namespace: &Namespace,
        left: Side,
        right: Side,
        seed: u64,
        impairments: &Impairments,
    ) -> Result<Self, LabError> {
        let sockets = namespace.run(|| Ok([socket(left)?, socket(right)?]))?;
        let sockets = sockets.map_err(|source| namespace.refused("start a relay", source))?;
        let lane = |direction| Lane::new(Fates::new(seed, direction, impairments.clone()));
        let lanes = Arc::new(Mutex::new(Direction::BOTH.map(lane)));
        let relays = Arc::downgrade(&lanes);
        thread::spawn(move || {
            while let Some(lanes) = relays.upgrade() {
                forward(&sockets, &lanes);
            }
        });
        Ok(Self { lanes, seed })
    }

    /// Changes the impairments of datagrams that come from now on, in both directions.
    pub fn impair(&self, impairments: &Impairments) {
        for lane in &mut *lock(&self.lanes) {
            lane.impair(impairments.clone());
        }
    }

    /// Counts of the datagrams in `direction`.
    pub fn tally(&self, direction: Direction) -> Tally {
        lock(&self.lanes)[direction as usize].tally()
    }

    /// The seed that every decision follows from.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// A socket that hears only the end that it talks to.
fn socket(side: Side) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(side.local)?;
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER)?;
    setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER)?;
    socket.connect(side.end)?;
    Ok(socket)
}

/// Waits until a datagram has come or is due, takes a burst from each side, and sends those due.
fn forward(sockets: &[UdpSocket; 2], lanes: &Mutex<[Lane; 2]>) {
    let due = lock(lanes).iter().filter_map(Lane::poll_timeout).min();
    wait(sockets, due);
    let mut lanes = lock(lanes);
    for (lane, from) in lanes.iter_mut().zip(sockets) {
        take_burst(from, lane);
    }
    for (lane, to) in lanes.iter_mut().zip(sockets.iter().rev()) {
        while let Some(datagram) = lane.poll_datagram(Instant::now()) {
            // An end that is not there, or has no room, is a loss like any other: its own to count.
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
    // Interrupted: the sockets are read all the same.
    let _ = ppoll(&mut fds, Some(left.min(END_CHECK).into()), None);
}

fn take_burst(from: &UdpSocket, lane: &mut Lane) {
    let mut buffer = [0; 65_535];
    for _ in 0..BURST {
        match recv(from.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => lane.handle_datagram(&buffer[..length], Instant::now()),
            // An earlier datagram found nobody there.
            Err(Errno::ECONNREFUSED | Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn lock(lanes: &Mutex<[Lane; 2]>) -> MutexGuard<'_, [Lane; 2]> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}
