//! The newest targets of one association.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

/// Targets that may answer; another one replaces the one that was silent longest.
const MAX_TARGETS: usize = 1024;
/// Addresses in the order in which they were last used.
#[derive(Default)]
pub(super) struct Targets {
    used: HashMap<SocketAddr, u64>,
    oldest: BTreeMap<u64, SocketAddr>,
    serial: u64,
}

impl Targets {
    /// Records that a datagram goes to an address.
    pub(super) fn insert(&mut self, target: SocketAddr) {
        self.serial += 1;
        if let Some(before) = self.used.insert(target, self.serial) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.serial, target);
        if self.used.len() > MAX_TARGETS
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// Records that a datagram came from an address; returns whether that may answer.
    pub(super) fn renew(&mut self, target: SocketAddr) -> bool {
        let is_known = self.used.contains_key(&target);
        if is_known {
            self.insert(target);
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: u16) -> SocketAddr {
        ([192, 0, 2, 1], number).into()
    }

    #[test]
    fn another_target_than_there_is_room_for_replaces_the_one_that_was_silent_longest() {
        let mut targets = Targets::default();
        for number in 1..=1024 {
            targets.insert(target(number));
        }
        assert!(targets.renew(target(1)));
        targets.insert(target(1025));
        assert!(targets.renew(target(1025)) && targets.renew(target(1)));
        assert!(!targets.renew(target(2)));
        assert_eq!((targets.used.len(), targets.oldest.len()), (1024, 1024));
    }
}
