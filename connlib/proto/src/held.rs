//! Packets held until a handshake completes.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::seams::PaddablePacket;

/// Most packets held for one peer, as in the reference.
pub(crate) const HELD_PACKETS: usize = 128;
/// Most memory of packets held for all peers together, in bytes, including the bookkeeping of each packet.
pub const HELD_BYTES: usize = 4 * 1024 * 1024;

/// Memory that a packet takes besides its contents, in bytes: its place in a queue that may be half empty,
/// and the allocator's rounding.
const OVERHEAD: usize = 2 * size_of::<Held>() + 32;
/// Zeros kept behind a held packet, in bytes, so that it can be padded in place.
const PADDING: usize = 15;

/// The held packets of all peers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct HeldPackets {
    /// Indexed by the peer's id.
    queues: Vec<Queue>,
    /// The bytes held and the id of each peer with held packets.
    by_bytes: BTreeSet<(usize, usize)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Held>,
    bytes: usize,
}

impl HeldPackets {
    pub(crate) fn is_empty(&self, peer: usize) -> bool {
        self.queues.get(peer).is_none_or(|q| q.packets.is_empty())
    }

    /// Holds a packet; returns the number of packets dropped for it. Beyond the bound of a peer, its oldest
    /// packet is dropped; beyond that of all peers, the oldest packets of the peer that holds most bytes.
    pub(crate) fn hold(&mut self, peer: usize, packet: &[u8]) -> u64 {
        let held = Held::new(packet);
        if self.queues.len() <= peer {
            self.queues.resize_with(peer + 1, Queue::default);
        }
        let mut dropped = 0;
        if self.queues[peer].packets.len() >= HELD_PACKETS {
            self.pop(peer);
            dropped += 1;
        }
        while self.bytes + held.cost() > HELD_BYTES
            && let Some(&(_, most)) = self.by_bytes.last()
        {
            self.pop(most);
            dropped += 1;
        }
        self.change(peer, |queue| {
            queue.bytes += held.cost();
            queue.packets.push_back(held);
        });
        dropped
    }

    /// Removes and returns the oldest packet of the peer.
    pub(crate) fn pop(&mut self, peer: usize) -> Option<Held> {
        if self.is_empty(peer) {
            return None;
        }
        self.change(peer, |queue| {
            let held = queue.packets.pop_front();
            queue.bytes -= held.as_ref().map_or(0, Held::cost);
            held
        })
    }

    /// Drops the peer's packets; returns their number.
    pub(crate) fn clear(&mut self, peer: usize) -> usize {
        if self.is_empty(peer) {
            return 0;
        }
        self.change(peer, |queue| std::mem::take(queue).packets.len())
    }

    fn change<T>(&mut self, peer: usize, change: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = &mut self.queues[peer];
        self.by_bytes.remove(&(queue.bytes, peer));
        self.bytes -= queue.bytes;
        let changed = change(queue);
        self.bytes += queue.bytes;
        if queue.packets.is_empty() {
            // Free its memory, which no other queue can use.
            *queue = Queue::default();
        } else {
            self.by_bytes.insert((queue.bytes, peer));
        }
        changed
    }
}

/// One packet, with room for its padding.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Bytes,
    len: usize,
}

impl Held {
    fn new(packet: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(packet.len() + PADDING);
        bytes.extend_from_slice(packet);
        bytes.extend_from_slice(&[0; PADDING]);
        Self {
            bytes: bytes.into(),
            len: packet.len(),
        }
    }

    /// The bytes that the packet counts against [`HELD_BYTES`].
    fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

impl PaddablePacket for Held {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static LONG: [u8; 60_000] = [0; 60_000];

    #[test]
    fn the_oldest_packet_makes_room_for_the_newest() {
        let mut held = HeldPackets::default();
        for n in 0..HELD_PACKETS + 3 {
            let dropped = held.hold(7, &[n as u8; 100]);
            assert_eq!(dropped, u64::from(n >= HELD_PACKETS));
        }
        assert_eq!(held.pop(7).unwrap().bytes(), [3; 100]);
        assert_eq!(held.clear(7), HELD_PACKETS - 1);
        assert!(held.pop(7).is_none() && held.bytes == 0 && held.by_bytes.is_empty());
    }

    #[test]
    fn the_peer_that_holds_most_makes_room_for_the_others() {
        let mut held = HeldPackets::default();
        held.hold(1, b"few");
        while held.bytes + LONG.len() + PADDING + OVERHEAD <= HELD_BYTES {
            assert_eq!(held.hold(0, &LONG), 0);
        }
        for n in 1..=10 {
            assert_eq!(held.hold(2, &LONG), 1);
            assert_eq!(held.queues[2].packets.len(), n);
            assert!(held.bytes <= HELD_BYTES);
        }
        assert_eq!(held.pop(1).unwrap().bytes(), b"few");
    }
}
