//! Packets held until a handshake completes.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::seams::PaddablePacket;

/// Most packets held for one peer; the reference holds as many.
pub(crate) const HELD_PACKETS: usize = 128;
/// Most bytes held for all peers together.
pub const HELD_BYTES: usize = 4 * 1024 * 1024;

/// Zeros kept behind a held packet, so that it can be padded in place.
const PADDING: usize = 15;

/// One packet, with room for its padding.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Bytes,
    len: usize,
}

impl Held {
    pub(crate) fn new(packet: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(packet.len() + PADDING);
        bytes.extend_from_slice(packet);
        bytes.extend_from_slice(&[0; PADDING]);
        Self {
            bytes: bytes.into(),
            len: packet.len(),
        }
    }

    /// The bytes that the packet counts against [`HELD_BYTES`].
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len()
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

/// Adds `packet`, and makes room for it by dropping the oldest packets of the same peer.
///
/// `total`: the bytes held for all peers. Returns the number of packets dropped, including `packet`
/// itself if dropping all others of this peer made no room.
pub(crate) fn hold(queue: &mut VecDeque<Held>, total: &mut usize, packet: &[u8]) -> u64 {
    let held = Held::new(packet);
    let mut dropped = 0;
    while queue.len() >= HELD_PACKETS || *total + held.cost() > HELD_BYTES {
        let Some(oldest) = queue.pop_front() else {
            return dropped + 1;
        };
        *total -= oldest.cost();
        dropped += 1;
    }
    *total += held.cost();
    queue.push_back(held);
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_packet_makes_room_for_the_newest() {
        let (mut queue, mut total) = (VecDeque::new(), 0);
        for n in 0..HELD_PACKETS + 3 {
            let dropped = hold(&mut queue, &mut total, &[n as u8; 100]);
            assert_eq!(dropped, u64::from(n >= HELD_PACKETS));
        }
        assert_eq!(queue.len(), HELD_PACKETS);
        assert_eq!(queue.front().unwrap().bytes(), [3; 100]);
    }

    #[test]
    fn the_bound_for_all_peers_together_holds() {
        let (mut others, mut mine, mut total) = (VecDeque::new(), VecDeque::new(), 0);
        while total + 60_000 + PADDING <= HELD_BYTES {
            assert_eq!(hold(&mut others, &mut total, &[0; 60_000]), 0);
        }
        assert_eq!(hold(&mut mine, &mut total, &[0; 60_000]), 1);
        assert!(mine.is_empty() && total <= HELD_BYTES);
    }
}
