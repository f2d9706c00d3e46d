//! The newest targets of one association.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Targets that may answer; another one replaces the one that was silent longest.
const MAX_TARGETS: usize = 1024;
/// Targets of all associations, beyond those that each may always have. One takes about 170 bytes.
const MOST_TARGETS: usize = 128 << 10;
/// Targets that each association may have.
const FEW_TARGETS: usize = 32;
/// An association may have this part of the targets that are left to others.
const PART: usize = 64;

/// Number of targets of all associations. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetCount(Arc<AtomicUsize>);

/// Addresses in the order in which they were last used.
pub(super) struct Targets {
    used: HashMap<SocketAddr, u64>,
    oldest: BTreeMap<u64, SocketAddr>,
    serial: u64,
    all: TargetCount,
}

impl Targets {
    /// None yet, which count together with those of other associations.
    pub(super) fn of(all: &TargetCount) -> Self {
        Self {
            used: HashMap::new(),
            oldest: BTreeMap::new(),
            serial: 0,
            all: all.clone(),
        }
    }

    /// Records that a datagram goes to an address.
    pub(super) fn insert(&mut self, target: SocketAddr) {
        self.serial += 1;
        let before = self.used.insert(target, self.serial);
        self.oldest.insert(self.serial, target);
        match before {
            Some(before) => drop(self.oldest.remove(&before)),
            None => self.make_room(),
        }
    }

    /// Counts another target; one or two others give way if there are too many.
    fn make_room(&mut self) {
        let all = self.all.0.fetch_add(1, Ordering::Relaxed);
        let left = MOST_TARGETS.saturating_sub(all) / PART;
        let most = left.clamp(FEW_TARGETS, MAX_TARGETS);
        for _ in 0..2 {
            if self.used.len() > most
                && let Some((_, oldest)) = self.oldest.pop_first()
            {
                self.used.remove(&oldest);
                self.all.0.fetch_sub(1, Ordering::Relaxed);
            }
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

impl Drop for Targets {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.used.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_associations_the_targets_are_bounded_and_each_has_a_few() {
        let all = TargetCount::default();
        let mut associations: Vec<_> = (0..2_000).map(|_| Targets::of(&all)).collect();
        for number in 0..200 {
            for targets in &mut associations {
                targets.insert(target(number));
            }
        }
        let counts = associations.iter().map(|it| it.used.len());
        assert!(counts.clone().all(|it| it >= FEW_TARGETS));
        let held: usize = counts.sum();
        assert_eq!(all.0.load(Ordering::Relaxed), held);
        assert!(held < 200_000, "{held}");
        // One that is new gets as many as the others keep.
        let mut newest = Targets::of(&all);
        (0..200).for_each(|number| newest.insert(target(number)));
        assert!(newest.used.len() >= FEW_TARGETS);
        drop((associations, newest));
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }

    fn target(number: u16) -> SocketAddr {
        ([192, 0, 2, 1], number).into()
    }

    #[test]
    fn another_target_than_there_is_room_for_replaces_the_one_that_was_silent_longest() {
        let mut targets = Targets::of(&TargetCount::default());
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
