//! Divides the connections of a rule among its clients, whose number nobody knows.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::occupants::Holder;

/// A client may have this many times as many connections as are free: alone 8/9 of all, one of many a smaller part, and
/// there is always room for another client (dynamic thresholds of Choudhury and Hahne, 1998).
const FACTOR: u32 = 8;

/// Connections of all clients. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients(Arc<Mutex<HashMap<Holder, u32>>>);

/// A client's connection, which is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    clients: Clients,
    holder: Holder,
}

impl Clients {
    /// Adds a connection of a client, unless it already has too many beside those that are `free`.
    pub(super) fn admit(&self, holder: Holder, free: u32) -> Option<Place> {
        let mut held = self.held();
        let count = held.get(&holder).copied().unwrap_or(0);
        if count >= free.saturating_mul(FACTOR) {
            return None;
        }
        held.insert(holder, count + 1);
        Some(Place {
            clients: self.clone(),
            holder,
        })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Holder, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.clients.held().entry(self.holder) {
            match *entry.get() {
                1 => drop(entry.remove()),
                count => *entry.get_mut() = count - 1,
            }
        }
    }
}
