//! TCP in both directions at once between the hub and the spokes, with every byte compared.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use convoy_lab::measure::Direction;

use super::hub::{Hub, SPOKES};

/// Time limit for the first handshake.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
/// A stream that receives nothing for this long has failed.
const STREAM_PATIENCE: Duration = Duration::from_secs(60);
/// Limit for the backlog, as time, that a delayed sender sends at once.
const CATCH_UP: Duration = Duration::from_millis(50);
/// Bytes per write of a sender.
const BLOCK: usize = 64 * 1024;
/// Two streams per spoke: up, then down.
pub(super) const STREAMS: usize = 2 * SPOKES.len();

/// The outcome of one direction of a connection.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) spoke: u8,
    /// Up from a spoke to the hub.
    pub(super) direction: Direction,
    pub(super) sent_bytes: u64,
    /// Bytes that arrived and equal those sent.
    pub(super) verified_bytes: u64,
    /// The reason why it ended early, or the first byte that differed.
    pub(super) error: Option<String>,
}

/// The sockets of a connection inside the tunnel: sender's and receiver's.
pub(super) type Sockets = [TcpStream; 2];

/// State shared by all streams.
pub(super) struct Load {
    began: Instant,
    /// Time between two blocks of a stream; zero for no limit.
    interval: Duration,
    done: AtomicBool,
    /// Verified bytes of each stream.
    arrived: [AtomicU64; STREAMS],
}

/// Opens a TCP connection through the tunnel, from a spoke (counted from 0) to the hub: one stream up and one down.
pub(super) fn open(hub: &Hub, number: usize) -> Result<[Sockets; 2]> {
    let spoke = SPOKES[number];
    let address = match spoke.is_multiple_of(2) {
        true => hub.hub.inner_v4(),
        false => hub.hub.inner_v6(),
    };
    let listener = hub.hub.namespace.run(|| TcpListener::bind((address, 0)))?;
    let listener = listener.context("listen at the hub")?;
    let to = listener.local_addr()?;
    let connect = || TcpStream::connect_timeout(&to, CONNECT_PATIENCE);
    let at_spoke = hub.spokes[number].namespace.run(connect)?;
    let at_spoke = at_spoke.with_context(|| format!("connect spoke {spoke} to the hub"))?;
    let (at_hub, _) = listener.accept().context("accept at the hub")?;
    for socket in [&at_spoke, &at_hub] {
        socket.set_read_timeout(Some(STREAM_PATIENCE))?;
        socket.set_write_timeout(Some(STREAM_PATIENCE))?;
    }
    let down = [at_hub.try_clone()?, at_spoke.try_clone()?];
    Ok([[at_spoke, at_hub], down])
}

impl Load {
    /// Starts a load with streams of `mbps` Mbit/s each; 0 for no limit.
    pub(super) fn new(mbps: f64) -> Self {
        let seconds = BLOCK as f64 * 8.0 / (mbps * 1e6);
        Self {
            began: Instant::now(),
            interval: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            done: AtomicBool::new(false),
            arrived: Default::default(),
        }
    }

    /// Seconds since the load began.
    pub(super) fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Sleeps until `at` or the end of the load; returns whether the load goes on.
    pub(super) fn continues_until(&self, at: f64) -> bool {
        while self.now() < at && !self.has_ended() {
            let rest = (at - self.now()).clamp(0.0, 0.25);
            thread::sleep(Duration::from_secs_f64(rest));
        }
        !self.has_ended()
    }

    /// Lets the senders finish their blocks and close.
    pub(super) fn end(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn arrived(&self) -> [u64; STREAMS] {
        let arrived = self.arrived.each_ref();
        arrived.map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// Sends and receives on stream `number` until the load ends.
    pub(super) fn carry(&self, number: usize, [from, to]: &Sockets) -> Stream {
        let seed = (number as u64) << 32;
        let (mut sent, mut sent_bytes) = (Ok(()), 0);
        let received = thread::scope(|scope| {
            scope.spawn(|| sent = self.send(from, seed, &mut sent_bytes));
            let received = receive(to, seed, &self.arrived[number]);
            if received.is_err() {
                // Ends the sender without waiting for its timeout; the connection may be gone already.
                let _ = to.shutdown(Shutdown::Both);
            }
            received
        });
        let error = received.and(sent).err();
        Stream {
            spoke: SPOKES[number / 2],
            direction: [Direction::Up, Direction::Down][number % 2],
            sent_bytes,
            verified_bytes: self.arrived()[number],
            error: error.map(|error| format!("{error:#}")),
        }
    }

    /// Sends until the load ends; counts the bytes.
    fn send(&self, mut to: &TcpStream, seed: u64, bytes: &mut u64) -> Result<()> {
        let mut next = Instant::now();
        while !self.has_ended() {
            let now = Instant::now();
            thread::sleep(next.saturating_duration_since(now));
            next = (next + self.interval).max(now.checked_sub(CATCH_UP).unwrap_or(now));
            to.write_all(&block(seed, *bytes)).context("send")?;
            *bytes += BLOCK as u64;
        }
        to.shutdown(Shutdown::Write).context("close the stream")
    }
}

/// Receives until the sender closes; counts whole blocks only, so the bytes of a partial block are missing.
fn receive(mut from: &TcpStream, seed: u64, verified_bytes: &AtomicU64) -> Result<()> {
    let mut received = vec![0; BLOCK];
    for at in (0..).step_by(BLOCK) {
        match from.read_exact(&mut received) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            outcome => outcome.context("receive")?,
        }
        let sent = block(seed, at);
        let differs = received.iter().zip(&sent).position(|(a, b)| a != b);
        let byte = at + differs.unwrap_or_default() as u64;
        ensure!(differs.is_none(), "byte {byte} differs");
        verified_bytes.fetch_add(BLOCK as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns a stream's block that begins at byte `at`. Each word mixes the seed with the word's own number, so that no
/// two are equal and any loss, repetition or reordering shows.
fn block(seed: u64, at: u64) -> Vec<u8> {
    let first = at / 8;
    let words = first..first + (BLOCK / 8) as u64;
    // Multiplication by an odd factor permutes the words (Fibonacci hashing).
    let scrambled = words.map(|word| (seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    scrambled.flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives these bytes over loopback.
    fn received(bytes: &[u8]) -> (u64, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let verified = AtomicU64::new(0);
        let outcome = thread::scope(|scope| {
            scope.spawn(move || sender.write_all(bytes).unwrap());
            receive(&receiver, 1, &verified)
        });
        let outcome = outcome.map_err(|error| error.to_string());
        (verified.into_inner(), outcome)
    }

    #[test]
    fn a_changed_byte_and_a_lost_repeated_or_strange_block_are_found() {
        let [first, second, third] = [0, 1, 2].map(|number| block(1, number * BLOCK as u64));
        let whole = received(&[&first[..], &second, &third].concat());
        assert_eq!(whole, (3 * BLOCK as u64, Ok(())));
        for wrong in [&first, &third, &block(2, BLOCK as u64)] {
            assert!(received(&[&first[..], wrong].concat()).1.is_err());
        }
        let first_part = first[..7].to_vec();
        let mut changed = second;
        changed[77] ^= 1;
        let (_, outcome) = received(&[first, changed].concat());
        assert_eq!(outcome, Err(format!("byte {} differs", BLOCK + 77)));
        assert_eq!(received(&first_part), (0, Ok(())), "a part is not counted");
    }
}
