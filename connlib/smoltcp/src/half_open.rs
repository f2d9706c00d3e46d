//! Connections that other ends have begun and not completed.
//!
//! There is no bound for each peer, but a peer that floods displaces only its own.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

/// Half-open connections of all peers.
pub(super) const MAX_HALF_OPEN: usize = 256;

#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    /// Places in the table by age, for each peer that has any.
    of_peers: HashMap<u32, BTreeMap<u64, usize>>,
    /// The peer and the serial number of each, by its place.
    known: HashMap<usize, (u32, u64)>,
    serial: u64,
}

impl HalfOpen {
    /// Adds a connection by its place in the table; returns the one that makes room for it.
    ///
    /// The oldest one of the peer that has most gives way.
    pub(super) fn add(&mut self, slot: usize, peer: u32) -> Option<usize> {
        self.serial += 1;
        self.known.insert(slot, (peer, self.serial));
        let own = self.of_peers.entry(peer).or_default();
        own.insert(self.serial, slot);
        if self.known.len() <= MAX_HALF_OPEN {
            return None;
        }
        let age = |own: &BTreeMap<u64, usize>| own.keys().next().copied();
        let greatest = self.of_peers.values();
        let greatest = greatest.max_by_key(|own| (own.len(), Reverse(age(own))));
        let oldest = greatest.and_then(|own| own.values().next().copied());
        oldest.inspect(|slot| self.remove(*slot))
    }

    /// Removes a connection that is established or has ended, if it is here.
    pub(super) fn remove(&mut self, slot: usize) {
        let Some((peer, serial)) = self.known.remove(&slot) else {
            return;
        };
        if let Some(own) = self.of_peers.get_mut(&peer) {
            own.remove(&serial);
            if own.is_empty() {
                self.of_peers.remove(&peer);
            }
        }
    }

    /// Returns how many a peer has.
    pub(super) fn count_of(&self, peer: u32) -> usize {
        self.of_peers.get(&peer).map_or(0, BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_floods_displaces_only_its_own() {
        let mut half_open = HalfOpen::default();
        assert_eq!(half_open.add(0, 1), None);
        for slot in 1..MAX_HALF_OPEN {
            assert_eq!(half_open.add(slot, 2), None);
        }
        for slot in MAX_HALF_OPEN..10_000 {
            let oldest = slot - MAX_HALF_OPEN + 1;
            assert_eq!(half_open.add(slot, 2), Some(oldest));
        }
        assert_eq!(half_open.add(10_000, 1), Some(10_000 - MAX_HALF_OPEN + 1));
        assert_eq!(half_open.count_of(1), 2);
    }

    #[test]
    fn of_peers_with_as_many_the_one_that_waits_longest_makes_room() {
        let mut half_open = HalfOpen::default();
        for slot in 0..MAX_HALF_OPEN {
            assert_eq!(half_open.add(slot, slot as u32), None);
        }
        assert_eq!(half_open.add(MAX_HALF_OPEN, 1_000), Some(0));
    }

    #[test]
    fn what_is_removed_makes_room_and_leaves_nothing() {
        let mut half_open = HalfOpen::default();
        for slot in 0..1_000 {
            assert_eq!(half_open.add(slot, slot as u32), None);
            half_open.remove(slot);
            half_open.remove(slot);
        }
        assert!(half_open.of_peers.is_empty() && half_open.known.is_empty());
    }
}
