//! TCP both ways at once between the hub and a spoke, every byte compared.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::bed::Bed;
use super::pattern::{BLOCK, Pattern};

/// How long the first handshake may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
/// A stream without a byte for this long is given up.
const STREAM_PATIENCE: Duration = Duration::from_secs(60);
/// The shortest silence that is recorded, in seconds.
const STALL: f64 = 0.5;
/// The most that a sender that was held up sends at once to catch up.
const CATCH_UP: Duration = Duration::from_millis(50);
const READ_BYTES: usize = 256 * 1024;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    /// From a spoke to the hub.
    Up,
    /// From the hub to a spoke.
    Down,
}

/// The outcome of one direction of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stream {
    pub(super) spoke: u8,
    pub(super) direction: Direction,
    pub(super) sent_bytes: u64,
    /// Arrived, and equal to the bytes sent.
    pub(super) verified_bytes: u64,
    pub(super) stalls: Vec<Stall>,
    /// Why it ended early, or the first byte that differed.
    pub(super) error: Option<String>,
}

/// A time, in seconds, in which nothing arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stall {
    pub(super) from_s: f64,
    pub(super) until_s: f64,
}

/// A TCP connection inside the tunnel: its ends at the spoke and at the hub.
pub(super) struct Connection {
    spoke: u8,
    ends: [TcpStream; 2],
}

/// The state that all streams share.
pub(super) struct Load {
    began: Instant,
    /// Between two blocks of a stream; zero for no limit.
    interval: Duration,
    done: AtomicBool,
    /// Bytes that arrived as they were sent, by direction.
    arrived: [AtomicU64; 2],
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl Connection {
    /// Opens a connection from a spoke to the hub, through the tunnel.
    pub(super) fn open(bed: &Bed, number: usize, spoke: u8) -> anyhow::Result<Self> {
        let address = SocketAddr::new(bed.hub_address(spoke), 0);
        let listener = bed.hub.namespace.run(|| TcpListener::bind(address))?;
        let listener = listener.context("listen at the hub")?;
        let to = listener.local_addr().context("listen at the hub")?;
        let connect = || TcpStream::connect_timeout(&to, CONNECT_PATIENCE);
        let at_spoke = bed.spokes[number].namespace.run(connect)?;
        let at_spoke = at_spoke.with_context(|| format!("connect spoke {spoke} to the hub"))?;
        let (at_hub, _) = listener.accept().context("accept at the hub")?;
        let ends = [at_spoke, at_hub];
        for socket in &ends {
            socket.set_read_timeout(Some(STREAM_PATIENCE))?;
            socket.set_write_timeout(Some(STREAM_PATIENCE))?;
        }
        Ok(Self { spoke, ends })
    }
}

impl Load {
    /// A load of streams of `mbps` Mbit/s each, 0 for no limit, that begins now.
    pub(super) fn new(mbps: f64) -> Self {
        let interval = match mbps {
            0.0 => Duration::ZERO,
            mbps => Duration::from_secs_f64(BLOCK as f64 * 8.0 / (mbps * 1e6)),
        };
        Self {
            began: Instant::now(),
            interval,
            done: AtomicBool::new(false),
            arrived: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Seconds since the load began.
    pub(super) fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Sleeps until `at`, in seconds; returns at once when that is past.
    pub(super) fn sleep_until(&self, at: f64) {
        let at = self.began + Duration::from_secs_f64(at.max(0.0));
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }

    /// Lets the senders finish their blocks and hang up.
    pub(super) fn end(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes that arrived as they were sent, up and down.
    pub(super) fn arrived(&self) -> [u64; 2] {
        self.arrived
            .each_ref()
            .map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// Starts both directions of a connection.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        Connection {
            spoke,
            ends: [at_spoke, at_hub],
        }: &'scope Connection,
    ) -> [Transfer<'scope>; 2] {
        let ways = [
            (Direction::Up, at_spoke, at_hub),
            (Direction::Down, at_hub, at_spoke),
        ];
        ways.map(|(direction, from, to)| {
            let seed = u64::from(*spoke) << 32 | direction as u64;
            Transfer {
                spoke: *spoke,
                direction,
                sender: scope.spawn(move || self.send(from, seed)),
                receiver: scope.spawn(move || self.receive(to, seed, direction)),
            }
        })
    }

    /// The bytes sent, and why it ended early.
    fn send(&self, mut to: &TcpStream, seed: u64) -> (u64, Option<String>) {
        let mut pattern = Pattern::new(seed);
        let mut next = Instant::now();
        let mut bytes = 0;
        while !self.has_ended() {
            let now = Instant::now();
            thread::sleep(next.saturating_duration_since(now));
            next = (next + self.interval).max(now.checked_sub(CATCH_UP).unwrap_or(now));
            if let Err(error) = to.write_all(pattern.next_block()) {
                return (bytes, Some(format!("sending: {error}")));
            }
            bytes += BLOCK as u64;
        }
        let hung_up = to.shutdown(Shutdown::Write);
        (
            bytes,
            hung_up.err().map(|error| format!("hanging up: {error}")),
        )
    }

    fn receive(&self, mut from: &TcpStream, seed: u64, direction: Direction) -> Received {
        let mut pattern = Pattern::new(seed);
        let mut buffer = vec![0; READ_BYTES];
        let mut received = Received::default();
        let mut last = self.now();
        received.error = loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => break None,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    break Some(format!("nothing arrived for {STREAM_PATIENCE:?}"));
                }
                Err(error) => break Some(format!("receiving: {error}")),
            };
            let now = self.now();
            if now - last > STALL {
                received.stalls.push(Stall {
                    from_s: last,
                    until_s: now,
                });
            }
            last = now;
            if let Err(at) = pattern.compare(&buffer[..read]) {
                break Some(format!("byte {} differs", received.bytes + at as u64));
            }
            received.bytes += read as u64;
            self.arrived[direction as usize].fetch_add(read as u64, Ordering::Relaxed);
        };
        if received.error.is_some() {
            // Spares the sender its patience; the connection may be gone already.
            let _ = from.shutdown(Shutdown::Both);
        }
        received
    }
}

/// Both ends of one direction.
pub(super) struct Transfer<'scope> {
    spoke: u8,
    direction: Direction,
    sender: ScopedJoinHandle<'scope, (u64, Option<String>)>,
    receiver: ScopedJoinHandle<'scope, Received>,
}

impl Transfer<'_> {
    /// Waits until both ends are done.
    pub(super) fn finish(self) -> anyhow::Result<Stream> {
        let panicked = |_| anyhow::anyhow!("a thread of the load panicked");
        let (sent_bytes, sender_error) = self.sender.join().map_err(panicked)?;
        let received = self.receiver.join().map_err(panicked)?;
        Ok(Stream {
            spoke: self.spoke,
            direction: self.direction,
            sent_bytes,
            verified_bytes: received.bytes,
            stalls: received.stalls,
            error: received.error.or(sender_error),
        })
    }
}

#[derive(Default)]
struct Received {
    bytes: u64,
    stalls: Vec<Stall>,
    error: Option<String>,
}
