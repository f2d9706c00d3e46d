//! One direction of a relay: what waits in it, and when it goes on.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    census::{Census, Registrar},
    fates::{Fates, Impairments, Passage},
};

/// The most datagrams that wait in a direction; another one is dropped, and counted.
pub const QUEUE: usize = 4_096;

/// A direction that has been silent for so long has nothing that could overtake what is held back.
const SILENCE: Duration = Duration::from_millis(50);

/// What happened to the datagrams of a direction.
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
    /// The same, by what the receiver must make of them.
    pub census: Census,
}

/// One direction. The order in which to call: [`Self::handle_datagram`] for each that comes, then
/// [`Self::poll_datagram`] until there is none; again when [`Self::poll_timeout`] says so.
#[derive(Debug)]
pub(super) struct Lane {
    fates: Fates,
    /// By the time at which they are due, and by arrival.
    delayed: BTreeMap<(Instant, u64), Waiting>,
    /// Due, but to be overtaken: by the number in `sent` at which they go, and by arrival.
    held: BTreeMap<(u64, u64), Waiting>,
    ready: VecDeque<Waiting>,
    tally: Tally,
    registrar: Registrar,
    arrivals: u64,
    last_sent: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    datagram: Vec<u8>,
    is_altered: bool,
    overtaken_by: u64,
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

    /// See [`Fates::impair`].
    pub(super) fn impair(&mut self, impairments: Impairments) {
        self.fates.impair(impairments);
    }

    /// A datagram has come.
    pub(super) fn handle_datagram(&mut self, datagram: &[u8], now: Instant) {
        let fate = self.fates.next(datagram.len());
        self.tally.received += 1;
        self.tally.dropped += u64::from(fate.is_dropped());
        self.tally.duplicated += fate.passages().len().saturating_sub(1) as u64;
        for passage in fate.passages() {
            self.enqueue(datagram, passage, now);
        }
    }

    /// The next datagram to send on, if one is due at `now`.
    pub(super) fn poll_datagram(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.make_ready(now);
        let next = self.ready.pop_front()?;
        self.tally.sent += 1;
        self.last_sent = Some(now);
        self.registrar.count(&next.datagram, next.is_altered);
        Some(next.datagram)
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
            census: self.registrar.census(),
            ..self.tally.clone()
        }
    }

    fn enqueue(&mut self, datagram: &[u8], passage: &Passage, now: Instant) {
        if self.waiting() == QUEUE {
            self.tally.overflowed += 1;
            return;
        }
        self.tally.held += u64::from(passage.overtaken_by > 0);
        let mut datagram = datagram.to_vec();
        if let Some(corruption) = &passage.corruption {
            corruption.apply(&mut datagram);
        }
        let waiting = Waiting {
            datagram,
            is_altered: passage.corruption.is_some(),
            overtaken_by: passage.overtaken_by,
        };
        self.arrivals += 1;
        // Silence is counted from now where nothing has been sent yet.
        self.last_sent.get_or_insert(now);
        self.delayed
            .insert((now + passage.delay, self.arrivals), waiting);
    }

    /// Moves one datagram that is due to where it is sent from, or to those held back.
    fn make_ready(&mut self, now: Instant) {
        while self.ready.is_empty() {
            let is_overtaken = |&(at, _): &(u64, u64)| at <= self.tally.sent;
            if self.held.keys().next().is_some_and(is_overtaken) {
                self.ready.extend(self.held.pop_first().map(|(_, w)| w));
            } else if self
                .delayed
                .keys()
                .next()
                .is_some_and(|&(due, _)| due <= now)
            {
                let Some(((_, arrival), waiting)) = self.delayed.pop_first() else {
                    return;
                };
                match waiting.overtaken_by {
                    0 => self.ready.push_back(waiting),
                    others => {
                        let at = self.tally.sent + others;
                        self.held.insert((at, arrival), waiting);
                    }
                }
            } else if self.last_sent.is_some_and(|last| last + SILENCE <= now) {
                let released = std::mem::take(&mut self.held);
                self.ready.extend(released.into_values());
                return;
            } else {
                return;
            }
        }
    }

    fn waiting(&self) -> usize {
        self.delayed.len() + self.held.len() + self.ready.len()
    }
}

#[cfg(test)]
mod tests;
