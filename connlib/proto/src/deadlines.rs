//! The deadlines of all peers in their order, one for each peer at most.
//!
//! A postponed deadline keeps its entry, which is corrected only when it comes up. Traffic only postpones timers, so it
//! changes nothing here.

use std::{collections::BTreeSet, time::Duration};

use crate::timers::Timers;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    entries: BTreeSet<(Duration, usize)>,
    /// The entry of all agents.
    agents: Option<Duration>,
    /// The entry of all TURN servers.
    relays: Option<Duration>,
}

/// Stands for the agents of all peers that are met through a hub.
pub(crate) const AGENTS: usize = usize::MAX;
/// Stands for all TURN servers.
pub(crate) const RELAYS: usize = usize::MAX - 1;

impl Deadlines {
    /// The earliest time at which [`Self::pop`] returns a peer.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Ensures that `peer` comes up no later than the first of its timers is due.
    pub(crate) fn arm(&mut self, peer: usize, timers: &mut Timers) {
        let Some(next) = timers.next() else { return };
        let is_covered = timers.armed.is_some_and(|armed| armed <= next);
        if !is_covered {
            self.disarm(peer, timers);
            timers.armed = Some(next);
            self.entries.insert((next, peer));
        }
    }

    /// Forgets the entry of a peer.
    pub(crate) fn disarm(&mut self, peer: usize, timers: &mut Timers) {
        if let Some(armed) = timers.armed.take() {
            self.entries.remove(&(armed, peer));
        }
    }

    /// Sets when an agent is due first.
    pub(crate) fn arm_agents(&mut self, next: Option<Duration>) {
        let former = std::mem::replace(&mut self.agents, next);
        self.replace(AGENTS, former, next);
    }

    /// Sets when a TURN server is due first.
    pub(crate) fn arm_relays(&mut self, next: Option<Duration>) {
        let former = std::mem::replace(&mut self.relays, next);
        self.replace(RELAYS, former, next);
    }

    /// Ensures that the TURN servers come up no later than at `now`.
    pub(crate) fn hasten_relays(&mut self, now: Duration) {
        let next = self.relays.map_or(now, |at| at.min(now));
        self.arm_relays(Some(next));
    }

    fn replace(&mut self, id: usize, former: Option<Duration>, next: Option<Duration>) {
        if former == next {
            return;
        }
        if let Some(armed) = former {
            self.entries.remove(&(armed, id));
        }
        self.entries.extend(next.map(|next| (next, id)));
    }

    /// Takes an entry that is due at `now`; the caller arms the peer again.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<(Duration, usize)> {
        let is_due = self.entries.first()?.0 <= now;
        let entry = is_due.then(|| self.entries.pop_first()).flatten()?;
        match entry.1 {
            AGENTS => self.agents = None,
            RELAYS => self.relays = None,
            _ => {}
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(100);

    #[test]
    fn traffic_that_only_postpones_a_timer_changes_nothing() {
        let mut deadlines = Deadlines::default();
        let mut timers = Timers::default();
        timers.set_persistent_keepalive(25, T0);
        timers.due(T0);
        for second in 0..20 {
            timers.authenticated_received(T0 + Duration::from_secs(second));
            deadlines.arm(7, &mut timers);
        }
        assert_eq!(deadlines.entries.len(), 1);
        let first = T0 + Duration::from_secs(25);
        assert_eq!(deadlines.pop(first), Some((first, 7)));
        timers.armed = None;
        deadlines.arm(7, &mut timers);
        assert_eq!(deadlines.next(), Some(T0 + Duration::from_secs(44)));
    }

    #[test]
    fn an_earlier_deadline_replaces_the_later_one_and_a_peer_that_goes_leaves_none() {
        let mut deadlines = Deadlines::default();
        let mut timers = Timers::default();
        for interval in [60, 50, 40, 30] {
            timers.set_persistent_keepalive(interval, T0);
            timers.authenticated_received(T0);
            deadlines.arm(7, &mut timers);
            assert_eq!(deadlines.entries.len(), 1);
        }
        deadlines.disarm(7, &mut timers);
        assert_eq!(deadlines.next(), None);
    }
}
