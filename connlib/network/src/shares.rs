//! Divides what a gateway can hold at once among its peers: flows by one [`Shares`], pending connections by another.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::counters::Refusal;

/// How much may exist at once.
///
/// Half of `total` is divided evenly among the peers, and nobody else can use a peer's part, its *reserve*. The rest is
/// common: whoever has used up its reserve takes from it, first come, first served, until it has `peer`. So however
/// much others ask for, each peer gets at least `total / 2 / peers`, rounded down, or `peer` if that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit of all peers together.
    pub total: u32,
    /// Limit of one peer.
    pub peer: u32,
    /// How many peers there are. Were more to take shares, none could count on its reserve.
    pub peers: u32,
}

/// Shares of some [`Limits`] that are taken. Clones count together.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Mutex<State>>);

/// One of what is limited. It is given back when this is dropped.
#[derive(Debug)]
#[must_use = "it is given back when dropped"]
pub struct Share {
    shares: Shares,
    peer: u32,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    /// By peer, for those that hold any: never more entries than `taken`. A map of std, as others may choose its keys.
    by_peer: HashMap<u32, u32>,
    taken: u32,
    /// Sum of what all peers hold beyond their reserves.
    common: u32,
}

impl Shares {
    /// Nothing is taken yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(State {
            limits,
            by_peer: HashMap::new(),
            taken: 0,
            common: 0,
        })))
    }

    /// Takes one for a peer, in constant time.
    ///
    /// # Errors
    /// [`Refusal::TooManyOfPeer`] if the peer has all that one may have; [`Refusal::TooMany`] if it has used up its
    /// reserve and nothing common is left.
    pub fn take(&self, peer: u32) -> Result<Share, Refusal> {
        self.state().take(peer)?;
        Ok(Share {
            shares: self.clone(),
            peer,
        })
    }

    /// Divides by another number of peers from now on.
    ///
    /// With more peers, reserves are smaller, and some peers may already hold more than is common then. Until they have
    /// given that back, others may be refused a part of their reserve: `total` is never exceeded.
    pub fn set_peers(&self, peers: u32) {
        let mut state = self.state();
        state.limits.peers = peers;
        let reserve = state.limits.reserve();
        let beyond = state
            .by_peer
            .values()
            .map(|held| held.saturating_sub(reserve));
        state.common = beyond.sum();
    }

    /// Returns whether a peer holds more than its reserve.
    pub fn is_beyond_reserve(&self, peer: u32) -> bool {
        let state = self.state();
        state.held(peer) > state.limits.reserve()
    }

    /// Counts the shares that a peer holds.
    #[must_use]
    pub fn held(&self, peer: u32) -> u32 {
        self.state().held(peer)
    }

    /// Counts the shares that a peer could take besides those it has.
    #[must_use]
    pub fn free(&self, peer: u32) -> u32 {
        self.state().free(peer)
    }

    /// Counts the shares that are taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.state().taken
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The peer that holds it.
    #[must_use]
    pub fn peer(&self) -> u32 {
        self.peer
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.state().give_back(self.peer);
    }
}

impl Limits {
    /// At most half of `total` for each peer; all of it if there is only one.
    #[must_use]
    pub fn of(total: u32, peers: u32) -> Self {
        Self {
            total,
            peer: if peers > 1 { total / 2 } else { total },
            peers,
        }
    }

    /// Returns what every peer can count on.
    fn reserve(&self) -> u32 {
        (self.total / 2)
            .checked_div(self.peers)
            .unwrap_or(0)
            .min(self.peer)
    }

    /// Returns the part that belongs to no reserve.
    fn common(&self) -> u32 {
        self.total - self.reserve() * self.peers
    }
}

impl State {
    fn held(&self, peer: u32) -> u32 {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }

    fn free(&self, peer: u32) -> u32 {
        let limits = self.limits;
        let held = self.held(peer);
        let reserved = limits.reserve().saturating_sub(held);
        let common = limits.common().saturating_sub(self.common);
        let most = limits.peer.saturating_sub(held);
        (reserved + common).min(most).min(limits.total - self.taken)
    }

    fn take(&mut self, peer: u32) -> Result<(), Refusal> {
        let Limits {
            total, peer: most, ..
        } = self.limits;
        let held = self.held(peer);
        if held >= most {
            return Err(Refusal::TooManyOfPeer);
        }
        let is_beyond = held >= self.limits.reserve();
        if self.taken >= total || (is_beyond && self.common >= self.limits.common()) {
            return Err(Refusal::TooMany);
        }
        self.by_peer.insert(peer, held + 1);
        self.taken += 1;
        self.common += u32::from(is_beyond);
        Ok(())
    }

    fn give_back(&mut self, peer: u32) {
        let Entry::Occupied(mut entry) = self.by_peer.entry(peer) else {
            return;
        };
        let held = *entry.get() - 1;
        match held {
            0 => drop(entry.remove()),
            _ => *entry.get_mut() = held,
        }
        self.taken -= 1;
        self.common -= u32::from(held >= self.limits.reserve());
    }
}

#[cfg(test)]
mod tests;
