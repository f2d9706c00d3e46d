//! One direction of a relay: the datagrams that wait in it, and when they go on.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::census::{Census, Registrar};
use super::fates::{Fates, Impairments, Passage};

/// The most datagrams that wait in a direction; another one is dropped, and counted.
pub const QUEUE: usize = 4_096;

/// After this much silence nothing will overtake the datagrams that are held back.
const SILENCE: Duration = Duration::from_millis(50);

/// Counts of the datagrams of a direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams that came.
    pub received: u64,
    /// Of these, lost as the fates would have it.
    pub dropped: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Copies held back for others to overtake.
    pub held: u64,
    /// Copies lost because [`QUEUE`] waited already.
    pub overflowed: u64,
    /// Copies that wait.
    pub waiting: u64,
    /// Copies sent on.
    pub sent: u64,
    /// The same, by class.
    pub census: Census,
}

/// One direction. The order in which to call: [`Self::handle_datagram`] for each that comes, then
/// [`Self::poll_datagram`] until there is none; again at [`Self::poll_timeout`].
#[derive(Debug)]
pub(super) struct Lane {
    fates: Fates,
    /// By the time at which they are due, and by arrival.
    delayed: BTreeMap<(Instant, u64), Passage>,
    /// Due, but to be overtaken: by the number in `sent` at which they go, and by arrival.
    held: BTreeMap<(u64, u64), Passage>,
    ready: VecDeque<Passage>,
    tally: Tally,
    registrar: Registrar,
    arrivals: u64,
    last_sent: Option<Instant>,
}

impl Lane {
    pub(super) fn new(fates: Fates) -> Self {
        Self {
            fates,
            delayed: BTreeMap::new(),
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            tally: Tally::default(),
            registrar: Registrar::default(),
            arrivals: 0,
            last_sent: None,
        }
    }

    /// Changes the fates of datagrams that come from now on.
    pub(super) fn impair(&mut self, impairments: Impairments) {
        self.fates.impair(impairments);
    }

    /// A datagram has come.
    pub(super) fn handle_datagram(&mut self, datagram: &[u8], now: Instant) {
        let passages = self.fates.next(datagram);
        self.tally.received += 1;
        self.tally.dropped += u64::from(passages.is_empty());
        self.tally.duplicated += passages.len().saturating_sub(1) as u64;
        for passage in passages {
            self.enqueue(passage, now);
        }
    }

    fn enqueue(&mut self, passage: Passage, now: Instant) {
        if self.waiting() == QUEUE {
            self.tally.overflowed += 1;
            return;
        }
        self.tally.held += u64::from(passage.overtaken_by > 0);
        self.arrivals += 1;
        // Silence is counted from now where nothing has been sent yet.
        self.last_sent.get_or_insert(now);
        let key = (now + passage.delay, self.arrivals);
        self.delayed.insert(key, passage);
    }

    /// The next datagram to send on, if one is due at `now`.
    pub(super) fn poll_datagram(&mut self, now: Instant) -> Option<Vec<u8>> {
        let next = self.next(now)?;
        self.tally.sent += 1;
        self.last_sent = Some(now);
        self.registrar.count(&next.datagram, next.is_altered);
        Some(next.datagram)
    }

    fn next(&mut self, now: Instant) -> Option<Passage> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if let Some(held) = self
                .held
                .first_entry()
                .filter(|h| h.key().0 <= self.tally.sent)
            {
                return Some(held.remove());
            }
            if let Some(due) = self.delayed.first_entry().filter(|d| d.key().0 <= now) {
                let ((_, arrival), passage) = due.remove_entry();
                if passage.overtaken_by == 0 {
                    return Some(passage);
                }
                let at = self.tally.sent + passage.overtaken_by;
                self.held.insert((at, arrival), passage);
            } else if self.last_sent? + SILENCE <= now && !self.held.is_empty() {
                self.ready
                    .extend(std::mem::take(&mut self.held).into_values());
            } else {
                return None;
            }
        }
    }

    /// When there may be something to send on, if nothing else comes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.delayed.keys().next().map(|&(due, _)| due);
        let silent = self.last_sent.map(|last| last + SILENCE);
        let released = silent.filter(|_| !self.held.is_empty());
        due.into_iter().chain(released).min()
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            waiting: self.waiting() as u64,
            census: self.registrar.census.clone(),
            ..self.tally.clone()
        }
    }

    fn waiting(&self) -> usize {
        self.delayed.len() + self.held.len() + self.ready.len()
    }
}

#[cfg(test)]
mod tests;
