//! The allowed IPs of one peer, listed in the order in which they were added.

use std::collections::{BTreeMap, btree_map};

use crate::config::AllowedIp;

/// A set of prefixes that remembers when each was last inserted.
///
/// Every change is logarithmic; only [`Prefixes::in_order`], which is rarely called, sorts.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// Each prefix with its position in the order of insertion.
    positions: BTreeMap<AllowedIp, u64>,
    next: u64,
}

impl Prefixes {
    /// Adds `prefix` at the end, or moves it there.
    pub(crate) fn insert(&mut self, prefix: AllowedIp) {
        self.positions.insert(prefix, self.next);
        self.next += 1;
    }

    /// Removes `prefix`; returns whether it was there.
    pub(crate) fn remove(&mut self, prefix: &AllowedIp) -> bool {
        self.positions.remove(prefix).is_some()
    }

    /// All prefixes, in the order of their last insertion.
    pub(crate) fn in_order(&self) -> Vec<AllowedIp> {
        let mut all: Vec<_> = self.positions.iter().collect();
        all.sort_unstable_by_key(|(_, position)| **position);
        all.into_iter().map(|(prefix, _)| *prefix).collect()
    }
}

/// Yields the prefixes in no particular order.
impl IntoIterator for Prefixes {
    type Item = AllowedIp;
    type IntoIter = btree_map::IntoKeys<AllowedIp, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.positions.into_keys()
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
        assert_eq!(prefixes.in_order(), [9, 1, 5, 3].map(host_prefix));
        prefixes.insert(host_prefix(1));
        assert_eq!(prefixes.in_order(), [9, 5, 3, 1].map(host_prefix));
        assert!(prefixes.remove(&host_prefix(5)));
        assert!(!prefixes.remove(&host_prefix(5)));
        prefixes.insert(host_prefix(2));
        assert_eq!(prefixes.in_order(), [9, 3, 1, 2].map(host_prefix));
    }

    fn host_prefix(host: u8) -> AllowedIp {
        AllowedIp {
            address: [10, 0, 0, host].into(),
            prefix: 32,
        }
    }
}
