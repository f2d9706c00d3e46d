//! The allowed IPs of one peer, and the order in which they were added.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use crate::config::Prefix;

/// A set of prefixes that remembers when each was last inserted. Every change is logarithmic.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// Each prefix with its position in the order of insertion.
    positions: BTreeMap<Prefix, u64>,
    next: u64,
}

impl Prefixes {
    /// Adds `prefix` at the end, or moves it there.
    pub(crate) fn insert(&mut self, prefix: Prefix) {
        self.positions.insert(prefix, self.next);
        self.next += 1;
    }

    /// Removes `prefix`; returns whether it was there.
    pub(crate) fn remove(&mut self, prefix: &Prefix) -> bool {
        self.positions.remove(prefix).is_some()
    }

    /// Removes and returns any prefix.
    pub(crate) fn pop(&mut self) -> Option<Prefix> {
        self.positions.pop_last().map(|(prefix, _)| prefix)
    }

    /// The prefixes greater than `first`, ascending, each with its position in the order of insertion.
    pub(crate) fn after(&self, first: Option<Prefix>) -> impl Iterator<Item = (Prefix, u64)> {
        let start = first.map_or(Unbounded, Excluded);
        let rest = self.positions.range((start, Unbounded));
        rest.map(|(prefix, position)| (*prefix, *position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_listed_in_the_order_of_their_last_insertion() {
        let mut prefixes = Prefixes::default();
        for host in [9, 1, 5, 3] {
            prefixes.insert(host_prefix(host));
        }
        assert_eq!(in_order(&prefixes), [9, 1, 5, 3].map(host_prefix));
        prefixes.insert(host_prefix(1));
        assert_eq!(in_order(&prefixes), [9, 5, 3, 1].map(host_prefix));
        assert!(prefixes.remove(&host_prefix(5)));
        assert!(!prefixes.remove(&host_prefix(5)));
        prefixes.insert(host_prefix(2));
        assert_eq!(in_order(&prefixes), [9, 3, 1, 2].map(host_prefix));
    }

    fn in_order(prefixes: &Prefixes) -> Vec<Prefix> {
        let mut all: Vec<_> = prefixes.after(None).collect();
        all.sort_by_key(|(_, position)| *position);
        all.into_iter().map(|(prefix, _)| prefix).collect()
    }

    fn host_prefix(host: u8) -> Prefix {
        Prefix::host([10, 0, 0, host].into())
    }
}
