//! Datagrams that wait until their peer has a channel.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

/// Most datagrams that wait for channels.
const MAX_HELD: usize = 64;
/// Most bytes of them.
const MAX_HELD_BYTES: usize = 64 << 10;
/// Longest time for which a datagram waits: WireGuard repeats a handshake message after five seconds.
const LONGEST_HELD: Duration = Duration::from_secs(5);

/// A bounded queue of datagrams; the oldest gives way.
#[derive(Debug, Default)]
pub(crate) struct Held {
    queue: VecDeque<Datagram>,
    bytes: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Datagram {
    to: SocketAddr,
    bytes: Vec<u8>,
    since: Duration,
}

impl Held {
    pub(crate) fn push(&mut self, to: SocketAddr, bytes: &[u8], now: Duration) {
        if bytes.len() > MAX_HELD_BYTES {
            self.dropped += 1;
            return;
        }
        while self.queue.len() == MAX_HELD || self.bytes + bytes.len() > MAX_HELD_BYTES {
            self.remove(0);
            self.dropped += 1;
        }
        self.bytes += bytes.len();
        let bytes = bytes.to_vec();
        self.queue.push_back(Datagram {
            to,
            bytes,
            since: now,
        });
    }

    /// Counts a datagram that is not taken.
    pub(crate) fn refuse(&mut self) {
        self.dropped += 1;
    }

    /// Takes the oldest datagram to a peer for which `is_ready`, and drops outdated ones.
    pub(crate) fn take(
        &mut self,
        is_ready: impl Fn(SocketAddr) -> bool,
        now: Duration,
    ) -> Option<(SocketAddr, Vec<u8>)> {
        while self
            .queue
            .front()
            .is_some_and(|it| it.since + LONGEST_HELD < now)
        {
            self.remove(0);
            self.dropped += 1;
        }
        let next = self.queue.iter().position(|it| is_ready(it.to))?;
        let datagram = self.remove(next)?;
        Some((datagram.to, datagram.bytes))
    }

    /// Drops the datagrams to peers that are no longer served.
    pub(crate) fn retain(&mut self, is_served: impl Fn(SocketAddr) -> bool) {
        let before = self.queue.len();
        self.queue.retain(|it| is_served(it.to));
        self.dropped += (before - self.queue.len()) as u64;
        self.bytes = self.queue.iter().map(|it| it.bytes.len()).sum();
    }

    /// Returns the number of datagrams dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn remove(&mut self, n: usize) -> Option<Datagram> {
        let removed = self.queue.remove(n)?;
        self.bytes -= removed.bytes.len();
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn the_oldest_datagram_gives_way_and_is_counted() {
        let mut held = Held::default();
        for n in 0..=MAX_HELD as u8 {
            held.push(peer(1), &[n], NOW);
        }
        assert_eq!(held.take(|_| true, NOW), Some((peer(1), vec![1])));
        assert_eq!(held.take_dropped(), 1);
        held.push(peer(1), &vec![0; MAX_HELD_BYTES], NOW);
        assert_eq!(held.queue.len(), 1);
        assert_eq!(held.take_dropped(), MAX_HELD as u64 - 1);
        held.push(peer(1), &vec![0; MAX_HELD_BYTES + 1], NOW);
        assert_eq!(held.take_dropped(), 1);
    }

    #[test]
    fn a_datagram_waits_for_its_own_peer_and_not_for_ever() {
        let mut held = Held::default();
        held.push(peer(1), b"a", NOW);
        held.push(peer(2), b"b", NOW);
        let second = held.take(|to| to == peer(2), NOW);
        assert_eq!(second, Some((peer(2), b"b".to_vec())));
        let late = NOW + LONGEST_HELD + Duration::from_millis(1);
        assert_eq!(held.take(|_| true, late), None);
        assert_eq!((held.bytes, held.take_dropped()), (0, 1));
    }
}
