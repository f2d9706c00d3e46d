//! Bounds of the probes and the answers that this side sends.

use std::time::Duration;

/// Most probes a second to all peers together.
pub const PROBES_PER_SECOND: u32 = 50;
/// Probes a second to one peer that keeps asking for more: a tenth, as others need theirs.
const PROBES_PER_SECOND_OF_PEER: u32 = PROBES_PER_SECOND / 10;
/// Most probes without a reply that one peer makes this side send at once; later on, one a second.
pub const MOST_UNANSWERED_PROBES: u32 = 150;

/// Answers to one peer at once; later on, [`PROBES_PER_SECOND`] each second, as an honest peer sends no more probes.
const ANSWERS_AT_ONCE: u32 = 2 * PROBES_PER_SECOND;

/// Most addresses that one peer makes this side's relay reach at once; later on, one each [`BETWEEN_CHANNELS`].
pub const CHANNELS_AT_ONCE: u32 = 6;
/// Time between two new addresses of one peer that this side's relay is to reach: each takes a channel for a quarter of an
/// hour (RFC 8656, section 12), and all peers share those of the relay.
pub const BETWEEN_CHANNELS: Duration = Duration::from_secs(30);

const SECOND: Duration = Duration::from_secs(1);

/// Probes that may be sent to all peers together; initially a second's worth.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeBudget(Bucket);

impl ProbeBudget {
    /// Takes a probe; returns whether there was one.
    pub fn take(&mut self, now: Duration) -> bool {
        self.0
            .take(SECOND / PROBES_PER_SECOND, PROBES_PER_SECOND, now)
    }
}

/// Probes that one peer makes this side send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerBudget {
    unanswered: Bucket,
    /// Answered probes count as well.
    all: Bucket,
}

impl PeerBudget {
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let interval = SECOND / PROBES_PER_SECOND_OF_PEER;
        let is_unanswered_taken = self.unanswered.take(SECOND, MOST_UNANSWERED_PROBES, now);
        is_unanswered_taken && self.all.take(interval, MOST_UNANSWERED_PROBES, now)
    }

    /// Gives a probe back, as it was answered: who is asked there is the peer.
    pub(crate) fn give_back(&mut self) {
        let full_at = &mut self.unanswered.full_at;
        *full_at = full_at.saturating_sub(SECOND);
    }
}

/// Answers that one peer makes this side send, whose addresses it may have forged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerBudget(Bucket);

impl AnswerBudget {
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        self.0
            .take(SECOND / PROBES_PER_SECOND, ANSWERS_AT_ONCE, now)
    }
}

/// Takes a probe of both budgets; returns whether there was one. If either has none, the other keeps its own.
pub(crate) fn take_probe(peer: &mut PeerBudget, all: &mut ProbeBudget, now: Duration) -> bool {
    let (mut of_peer, mut of_all) = (*peer, *all);
    let is_taken = of_peer.take(now) && of_all.take(now);
    if is_taken {
        (*peer, *all) = (of_peer, of_all);
    }
    is_taken
}

/// Addresses that one peer makes this side's relay reach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChannelBudget(Bucket);

impl ChannelBudget {
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        self.0.take(BETWEEN_CHANNELS, CHANNELS_AT_ONCE, now)
    }

    /// Returns when [`Self::take`] succeeds again.
    pub(crate) fn next(&self, now: Duration) -> Duration {
        let has_token = self
            .0
            .full_at
            .saturating_sub(BETWEEN_CHANNELS * (CHANNELS_AT_ONCE - 1));
        has_token.max(now)
    }
}

/// A token bucket by the generic cell rate algorithm: the time at which it will be full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Duration,
}

impl Bucket {
    fn take(&mut self, interval: Duration, burst: u32, now: Duration) -> bool {
        let full_at = self.full_at.max(now) + interval;
        let has_token = full_at <= now + interval * burst;
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(100);

    #[test]
    fn a_second_has_fifty_probes_and_the_next_as_many() {
        let mut budget = ProbeBudget::default();
        assert_eq!((0..200).filter(|_| budget.take(T0)).count(), 50);
        assert_eq!((0..200).filter(|_| budget.take(T0 + SECOND)).count(), 50);
    }

    #[test]
    fn a_peer_that_answers_nothing_gets_one_probe_a_second_in_the_end() {
        let mut budget = PeerBudget::default();
        assert_eq!((0..999).filter(|_| budget.take(T0)).count(), 150);
        let later = (1..=60).filter(|n| budget.take(T0 + *n * SECOND) && !budget.take(T0));
        assert_eq!(later.count(), 60);
        budget.give_back();
        assert!(budget.take(T0 + 60 * SECOND) && !budget.take(T0 + 60 * SECOND));
    }

    #[test]
    fn a_peer_gets_six_channels_at_once_and_then_one_each_five_seconds() {
        let mut budget = ChannelBudget::default();
        assert_eq!((0..99).filter(|_| budget.take(T0)).count(), 6);
        let mut now = T0;
        for _ in 0..10 {
            let next = budget.next(now);
            assert_eq!(next, now + BETWEEN_CHANNELS);
            assert!(!budget.take(next - Duration::from_millis(1)));
            assert!(budget.take(next));
            now = next;
        }
    }
}
