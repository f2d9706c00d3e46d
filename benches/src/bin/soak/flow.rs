//! TCP both ways at once between the hub and a spoke, every byte compared.

use std::{
    fmt,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{
    bed::Bed,
    clock::Clock,
    pattern::{BLOCK, Pattern},
};

/// How long the first handshake may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
/// After so long without a byte a stream is given up.
const STREAM_PATIENCE: Duration = Duration::from_secs(60);
/// Silence that is written down, in seconds.
const STALL: f64 = 0.5;
/// A sender that was held up sends no more than this at once to catch up.
const CATCH_UP: Duration = Duration::from_millis(50);
/// One read.
const READ_BYTES: usize = 256 * 1024;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// From a spoke to the hub.
    Up,
    /// From the hub to a spoke.
    Down,
}

/// What became of one direction of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) spoke: u8,
    pub(crate) direction: Direction,
    pub(crate) sent_bytes: u64,
    /// Arrived, and equal to what was sent.
    pub(crate) verified_bytes: u64,
    pub(crate) stalls: Vec<Stall>,
    /// Why it ended early, or what differed.
    pub(crate) error: Option<String>,
}

/// A time, in seconds, in which nothing arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stall {
    pub(crate) from_s: f64,
    pub(crate) until_s: f64,
}

/// A TCP connection inside the tunnel.
pub(crate) struct Connection {
    spoke: u8,
    at_spoke: TcpStream,
    at_hub: TcpStream,
}

/// What all streams share.
pub(crate) struct Load {
    pub(crate) clock: Clock,
    /// Between two blocks of a stream; zero for no limit.
    interval: Duration,
    done: AtomicBool,
    up: AtomicU64,
    down: AtomicU64,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl Connection {
    /// Opens a connection from a spoke to the hub, through the tunnel.
    pub(crate) fn open(bed: &Bed, number: usize, spoke: u8) -> anyhow::Result<Self> {
        let address = SocketAddr::new(bed.hub_address(spoke), 0);
        let hub = &bed.hub.namespace;
        let listener = hub
            .run(|| TcpListener::bind(address))?
            .context("listen at the hub")?;
        let to = listener.local_addr().context("listen at the hub")?;
        let connect = || TcpStream::connect_timeout(&to, CONNECT_PATIENCE);
        let at_spoke = bed.spokes[number]
            .namespace
            .run(connect)?
            .with_context(|| format!("connect spoke {spoke} to the hub"))?;
        let (at_hub, _) = listener.accept().context("accept at the hub")?;
        for socket in [&at_spoke, &at_hub] {
            socket.set_read_timeout(Some(STREAM_PATIENCE))?;
            socket.set_write_timeout(Some(STREAM_PATIENCE))?;
        }
        Ok(Self {
            spoke,
            at_spoke,
            at_hub,
        })
    }
}

impl Load {
    /// A load of streams of `mbps` Mbit/s each; 0 for no limit.
    pub(crate) fn new(clock: Clock, mbps: f64) -> Self {
        let interval = match mbps {
            0.0 => Duration::ZERO,
            mbps => Duration::from_secs_f64(BLOCK as f64 * 8.0 / (mbps * 1e6)),
        };
        Self {
            clock,
            interval,
            done: AtomicBool::new(false),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        }
    }

    /// Lets the senders finish their blocks and hang up.
    pub(crate) fn end(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes that have arrived and were as sent.
    pub(crate) fn arrived(&self, direction: Direction) -> u64 {
        self.count(direction).load(Ordering::Relaxed)
    }

    /// Starts both directions of a connection; what is returned waits for their end.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        connection: &'scope Connection,
    ) -> [Transfer<'scope>; 2] {
        let Connection {
            spoke,
            at_spoke,
            at_hub,
        } = connection;
        [
            (Direction::Up, at_spoke, at_hub),
            (Direction::Down, at_hub, at_spoke),
        ]
        .map(|(direction, from, to)| {
            let seed = u64::from(*spoke) << 32 | direction as u64;
            Transfer {
                spoke: *spoke,
                direction,
                sender: scope.spawn(move || self.send(from, seed)),
                receiver: scope.spawn(move || self.receive(to, seed, direction)),
            }
        })
    }

    fn count(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn send(&self, mut to: &TcpStream, seed: u64) -> Sent {
        let mut pattern = Pattern::new(seed);
        let mut next = Instant::now();
        let mut bytes = 0;
        while !self.has_ended() {
            let now = Instant::now();
            thread::sleep(next.saturating_duration_since(now));
            next = (next + self.interval).max(now.checked_sub(CATCH_UP).unwrap_or(now));
            if let Err(error) = to.write_all(pattern.next_block()) {
                let error = Some(format!("sending: {error}"));
                return Sent { bytes, error };
            }
            bytes += BLOCK as u64;
        }
        let hung_up = to.shutdown(Shutdown::Write);
        let error = hung_up.err().map(|error| format!("hanging up: {error}"));
        Sent { bytes, error }
    }

    fn receive(&self, mut from: &TcpStream, seed: u64, direction: Direction) -> Received {
        let mut pattern = Pattern::new(seed);
        let mut buffer = vec![0; READ_BYTES];
        let mut received = Received::default();
        let mut last = self.clock.now();
        let error = loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => break None,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    break Some(format!("nothing arrived for {STREAM_PATIENCE:?}"));
                }
                Err(error) => break Some(format!("receiving: {error}")),
            };
            let now = self.clock.now();
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
            self.count(direction)
                .fetch_add(read as u64, Ordering::Relaxed);
        };
        if error.is_some() {
            // So that the sender does not wait for its patience; the connection may be gone already.
            let _ = from.shutdown(Shutdown::Both);
        }
        Received { error, ..received }
    }
}

/// Both ends of one direction.
pub(crate) struct Transfer<'scope> {
    spoke: u8,
    direction: Direction,
    sender: ScopedJoinHandle<'scope, Sent>,
    receiver: ScopedJoinHandle<'scope, Received>,
}

impl Transfer<'_> {
    /// Waits until both ends are done.
    pub(crate) fn finish(self) -> anyhow::Result<Stream> {
        let panicked = |_| anyhow::anyhow!("a thread of the load panicked");
        let sent = self.sender.join().map_err(panicked)?;
        let received = self.receiver.join().map_err(panicked)?;
        Ok(Stream {
            spoke: self.spoke,
            direction: self.direction,
            sent_bytes: sent.bytes,
            verified_bytes: received.bytes,
            stalls: received.stalls,
            error: received.error.or(sent.error),
        })
    }
}

struct Sent {
    bytes: u64,
    error: Option<String>,
}

#[derive(Default)]
struct Received {
    bytes: u64,
    stalls: Vec<Stall>,
    error: Option<String>,
}
