//! Tells the peer this side's candidates until it has said that they have arrived.

use std::time::Duration;

use convoy_types::Candidate;

use crate::message::{Candidates, MAX_CANDIDATES};

/// Copies of an offer; with the intervals below they take some 10 s.
const MAX_COPIES: usize = 12;
const INTERVALS: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// This side's candidates, and whether the peer has them.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    candidates: Candidates,
    copies: usize,
    /// When the present generation was first sent.
    first_sent: Option<Duration>,
    has_arrived: bool,
    pub(crate) next: Option<Duration>,
}

impl Offer {
    /// Replaces the candidates; returns whether they differ. [`Self::renew`] tells the peer.
    pub(crate) fn set(&mut self, list: &[Candidate]) -> bool {
        let list = &list[..list.len().min(MAX_CANDIDATES)];
        let differs = self.candidates.list != list;
        self.candidates.list = list.to_vec();
        differs
    }

    /// Makes a new generation, to be sent from now on. `seed` is a random number, used the first time.
    pub(crate) fn renew(&mut self, is_request: bool, seed: u64, now: Duration) {
        let candidates = &mut self.candidates;
        if candidates.generation == 0 {
            candidates.generation = seed & !u64::from(u32::MAX);
        }
        candidates.generation += 1;
        candidates.is_request = is_request;
        self.copies = 0;
        self.first_sent = None;
        self.has_arrived = false;
        self.next = Some(now);
    }

    /// Resends the current generation unless the peer has acknowledged it.
    pub(crate) fn resend(&mut self, now: Duration) {
        if !self.has_arrived {
            self.copies = 0;
            self.next = Some(now);
        }
    }

    /// Stops telling the peer.
    pub(crate) fn stop(&mut self) {
        self.next = None;
    }

    /// The message to send, if one is due.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Candidates> {
        self.next.take_if(|at| *at <= now)?;
        let interval = INTERVALS[self.copies.min(INTERVALS.len() - 1)];
        self.copies += 1;
        self.first_sent.get_or_insert(now);
        self.next = (self.copies < MAX_COPIES).then_some(now + interval);
        Some(self.candidates.clone())
    }

    /// Records that a generation has arrived; returns the round trip if the first copy of the present one did.
    pub(crate) fn received(&mut self, generation: u64, now: Duration) -> Option<Duration> {
        if generation != self.candidates.generation || self.has_arrived {
            return None;
        }
        self.has_arrived = true;
        self.next = None;
        let first = self.first_sent.filter(|_| self.copies == 1);
        first.map(|at| now.saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_repeated_until_it_has_arrived() {
        let mut offer = Offer::default();
        let ms = Duration::from_millis;
        assert_eq!(offer.poll(ms(0)), None);
        offer.renew(true, 7 << 32, ms(0));
        let first = offer.poll(ms(0)).unwrap();
        assert_eq!(first.generation, (7 << 32) + 1);
        assert_eq!(offer.poll(ms(199)), None);
        assert_eq!(offer.poll(ms(200)), Some(first.clone()));
        assert_eq!(offer.received(first.generation - 1, ms(210)), None);
        assert_eq!(offer.received(first.generation, ms(220)), None, "of a copy");
        assert_eq!(offer.next, None);
        offer.renew(false, 9 << 32, ms(1000));
        let second = offer.poll(ms(1000)).unwrap();
        assert_eq!(second.generation, first.generation + 1);
        assert_eq!(offer.received(second.generation, ms(1040)), Some(ms(40)));
    }

    #[test]
    fn a_peer_that_says_nothing_gets_twelve_copies() {
        let mut offer = Offer::default();
        offer.renew(true, 0, Duration::ZERO);
        let mut copies = 0;
        while let Some(at) = offer.next {
            assert!(offer.poll(at).is_some());
            copies += 1;
        }
        assert_eq!(copies, MAX_COPIES);
        assert!(!offer.has_arrived);
    }
}
