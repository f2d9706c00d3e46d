//! Memory of datagrams that wait for their flow to be set up.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Most bytes of datagrams that wait for their flow to be set up, in all.
const MOST: usize = 4 << 20;
/// Most bytes that wait for the flows of one rule or peer, which gets no more than is left for others.
const MOST_EACH: usize = 512 << 10;
/// Memory that each takes beside its bytes.
const OVERHEAD: usize = 128;

const _: () = assert!(MOST_EACH >= 65_535 + OVERHEAD);

/// The memory, divided among rules or peers. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    total: usize,
    /// For those that hold any. A map of std, as others may choose its keys.
    by_group: HashMap<u32, usize>,
}

/// The memory as one rule uses it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// All of the memory.
    pub waiting: &'a Waiting,
    /// Number of the rule.
    pub group: u32,
}

/// A datagram that waits; dropping it gives its memory back. Small, as each flow has room for several.
#[derive(Debug)]
pub struct Early(Box<Held>);

#[derive(Debug)]
struct Held {
    bytes: Box<[u8]>,
    class: u8,
    group: u32,
    waiting: Waiting,
}

impl Waiting {
    /// Copies a datagram, with its traffic class, of a rule or peer; `None` if too much waits already.
    pub fn hold(&self, group: u32, datagram: &[u8], class: u8) -> Option<Early> {
        let length = datagram.len() + OVERHEAD;
        let mut state = self.state();
        let of_group = state.by_group.get(&group).map_or(0, |held| *held) + length;
        if of_group > MOST_EACH.min(MOST - state.total) {
            return None;
        }
        state.total += length;
        state.by_group.insert(group, of_group);
        drop(state);
        Some(Early(Box::new(Held {
            bytes: datagram.into(),
            class,
            group,
            waiting: self.clone(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part<'_> {
    /// Copies a datagram as [`Waiting::hold`] does.
    pub fn hold(self, datagram: &[u8], class: u8) -> Option<Early> {
        self.waiting.hold(self.group, datagram, class)
    }
}

impl Early {
    /// The traffic class that it arrived with: DSCP and ECN.
    #[must_use]
    pub fn class(&self) -> u8 {
        self.0.class
    }
}

impl Deref for Early {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let length = self.bytes.len() + OVERHEAD;
        let mut state = self.waiting.state();
        state.total -= length;
        let of_group = state.by_group.get(&self.group).map_or(0, |held| *held);
        match of_group.saturating_sub(length) {
            0 => drop(state.by_group.remove(&self.group)),
            left => drop(state.by_group.insert(self.group, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_greedy_ones_leave_some_to_others() {
        let waiting = Waiting::default();
        let mut held = Vec::new();
        for group in 0..12 {
            let before = held.len();
            held.extend(std::iter::from_fn(|| waiting.hold(group, &[7; 1_000], 0)));
            assert!(held.len() > before, "{group}");
        }
    }

    #[test]
    fn nobody_holds_more_than_its_part_and_all_together_no_more_than_there_is() {
        let waiting = Waiting::default();
        let longest = [7; 65_535];
        let fill = |group| -> Vec<_> {
            let each = std::iter::from_fn(|| waiting.hold(group, &longest, 0));
            each.collect()
        };
        let greedy = fill(0);
        assert_eq!(greedy.len(), 7);
        let all: Vec<_> = (1..100).map(fill).collect();
        let held: usize = all
            .iter()
            .chain([&greedy])
            .flatten()
            .map(|it| it.len())
            .sum();
        assert!(held <= MOST && held > MOST * 9 / 10, "{held}");
        // Datagrams without bytes are memory as well.
        drop(all);
        let empty = std::iter::from_fn(|| waiting.hold(1, &[], 0));
        let empty: Vec<_> = empty.collect();
        assert!(empty.len() <= MOST_EACH / OVERHEAD);
        drop(empty);
        drop(greedy);
        let state = waiting.state();
        assert!(state.total == 0 && state.by_group.is_empty());
    }
}
