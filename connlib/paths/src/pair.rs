//! One remote candidate, the way to it, and what probes have told of it.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_types::{Candidate, CandidateKind};

use crate::message::MAX_CANDIDATES;

/// Most candidates that are learnt from the sources of probes.
pub const MAX_LEARNT: usize = 4;
/// Most of a peer's addresses that this side's relay reaches at once.
pub const MAX_CHANNELS: usize = 6;
/// Most of them that are learnt from the sources of probes.
pub(crate) const MAX_LEARNT_BY_RELAY: usize = 2;
/// Most pairs with one peer, without those by this side's relay.
pub(crate) const DIRECT_PAIRS: usize = MAX_CANDIDATES + MAX_LEARNT;
/// Most pairs with one peer.
pub const MAX_PAIRS: usize = DIRECT_PAIRS + MAX_CHANNELS;

/// Probes of a round: a peer's NAT may open only with its own first probe, so the first ones come fast.
pub(crate) const MAX_PROBES: usize = 12;
/// Replies after which a round ends: the round trip is known well enough.
const REPLIES: usize = 3;
/// Times between the first probes; from then on the last one.
const INTERVALS: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// Least time between a probe and the next one that is sent beside those of a round.
const BETWEEN_KEPT: Duration = Duration::from_secs(1);
/// Probes without a reply after which a path is silent, if the first of them has had the time below.
const SILENCE: usize = 3;
const PATIENCE: Duration = Duration::from_secs(2);
/// Probes without a reply after which a relayed path is dead, if the first of them has had the time below: each end may
/// use a relay of its own, so that what arrives tells nothing of the way back.
const DEATH: usize = 6;
const LAST_PATIENCE: Duration = Duration::from_secs(3);

/// Tells the pairs of a peer apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathId {
    /// The remote address.
    pub(crate) remote: SocketAddr,
    /// Whether this side's relay carries what goes there.
    pub(crate) by_relay: bool,
}

impl PathId {
    pub(crate) fn direct(remote: SocketAddr) -> Self {
        let by_relay = false;
        Self { remote, by_relay }
    }

    pub(crate) fn by_relay(remote: SocketAddr) -> Self {
        let by_relay = true;
        Self { remote, by_relay }
    }
}

/// How far the way to a candidate is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// This side's sockets reach it.
    Direct,
    /// This side's relay is to be asked for a channel to it.
    Wanted,
    /// It has been asked.
    Asked,
    /// It has the channel.
    Bound,
}

/// One remote candidate, the way to it, and what probes have told of it.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The remote candidate.
    pub candidate: Candidate,
    pub(crate) reach: Reach,
    /// The local address at which its last reply arrived.
    pub source: Option<IpAddr>,
    /// The shortest round trip of the present round, or the last one of the path.
    pub round_trip: Option<Duration>,
    /// Probes of this round, by their numbers, until they are answered, and times.
    sent: Vec<(Option<u64>, Duration)>,
    replies: usize,
    /// Probes since the last reply, and the time of the first.
    unanswered: usize,
    unanswered_since: Duration,
    /// Whether the next probe is a single one.
    is_kept: bool,
    /// When to send the next probe.
    pub(crate) next: Option<Duration>,
}

impl Pair {
    /// A pair with a candidate that this side's sockets reach.
    pub(crate) fn new(candidate: Candidate) -> Self {
        Self {
            candidate,
            reach: Reach::Direct,
            source: None,
            round_trip: None,
            sent: Vec::new(),
            replies: 0,
            unanswered: 0,
            unanswered_since: Duration::ZERO,
            is_kept: false,
            next: None,
        }
    }

    /// A pair with a candidate that this side's relay is to reach.
    pub(crate) fn by_relay(candidate: Candidate) -> Self {
        Self {
            reach: Reach::Wanted,
            ..Self::new(candidate)
        }
    }

    /// Returns whether this side's relay carries what goes to the candidate.
    #[must_use]
    pub fn is_by_relay(&self) -> bool {
        self.reach != Reach::Direct
    }

    /// Returns how the candidate came to be known; [`CandidateKind::Relayed`] if a relay is on the way.
    #[must_use]
    pub fn kind(&self) -> CandidateKind {
        match self.is_by_relay() {
            true => CandidateKind::Relayed,
            false => self.candidate.kind,
        }
    }

    pub(crate) fn id(&self) -> PathId {
        PathId {
            remote: self.candidate.address,
            by_relay: self.is_by_relay(),
        }
    }

    /// Returns whether it has answered a probe of this round.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.replies > 0
    }

    /// Returns whether the last probes got no reply.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        let time = now.saturating_sub(self.unanswered_since);
        self.unanswered >= SILENCE && time >= PATIENCE
    }

    /// Returns whether enough probes have gone unanswered to give the path up.
    pub(crate) fn is_dead(&self, now: Duration) -> bool {
        let time = now.saturating_sub(self.unanswered_since);
        self.unanswered >= DEATH && time >= LAST_PATIENCE
    }

    /// Begins a round; what an earlier one has told no longer counts.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.round_trip = None;
        self.unanswered = 0;
        self.again(now);
    }

    /// Begins a round, but remembers that it has answered before.
    pub(crate) fn again(&mut self, now: Duration) {
        self.sent.clear();
        self.replies = 0;
        self.next = self.is_ready().then_some(now);
    }

    /// Continues the round beyond its replies, as none was fast enough.
    pub(crate) fn go_on(&mut self, now: Duration) {
        if self.next.is_none() && self.sent.len() < MAX_PROBES {
            self.next = Some(now + INTERVALS[INTERVALS.len() - 1]);
        }
    }

    /// Sends one probe now, beside those of the round. Not soon after one that was answered: two ends that each answer
    /// the other's probe with one of their own would never end.
    pub(crate) fn keep(&mut self, now: Duration) {
        let last = self.sent.last();
        let is_soon = last.is_some_and(|(_, at)| now.saturating_sub(*at) < BETWEEN_KEPT);
        let is_in_doubt = (1..SILENCE).contains(&self.unanswered);
        let is_too_soon = is_soon && !is_in_doubt;
        if self.next.is_none() && self.is_ready() && !is_too_soon {
            self.is_kept = true;
            self.next = Some(now);
        }
    }

    /// Forgets that it has answered: the path has failed.
    pub(crate) fn doubt(&mut self) {
        self.round_trip = None;
        self.sent.clear();
        self.replies = 0;
        self.next = None;
    }

    /// Forgets the channel of this side's relay.
    pub(crate) fn unbind(&mut self) {
        if self.is_by_relay() {
            self.doubt();
        }
        if self.reach == Reach::Bound {
            self.reach = Reach::Asked;
        }
    }

    /// Returns whether probes can be sent.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.reach, Reach::Direct | Reach::Bound)
    }

    /// Records a probe sent now.
    pub(crate) fn probe_sent(&mut self, id: u64, now: Duration) {
        if self.sent.len() == MAX_PROBES {
            self.sent.remove(0);
        }
        self.sent.push((Some(id), now));
        if self.unanswered == 0 {
            self.unanswered_since = now;
        }
        self.unanswered += 1;
        let nth = self.sent.len();
        if std::mem::take(&mut self.is_kept) {
            self.next = None;
            return;
        }
        let interval = INTERVALS[(nth - 1).min(INTERVALS.len() - 1)];
        self.next = (nth < MAX_PROBES).then_some(now + interval);
    }

    /// Records a reply; returns whether it answers one of the probes.
    pub(crate) fn replied(&mut self, id: u64, source: Option<IpAddr>, now: Duration) -> bool {
        let mut sent = self.sent.iter_mut();
        let Some((answered, at)) = sent.find(|(sent, _)| *sent == Some(id)) else {
            return false;
        };
        // A second reply to the probe is a copy.
        *answered = None;
        let round_trip = now.saturating_sub(*at);
        // The best of a round, and later on the last.
        let is_first = self.replies == 0 || self.replies >= REPLIES;
        let shortest = self.round_trip.filter(|_| !is_first);
        self.round_trip = Some(shortest.map_or(round_trip, |it| it.min(round_trip)));
        self.source = source;
        self.unanswered = 0;
        self.replies += 1;
        if self.replies >= REPLIES {
            self.next = None;
        }
        true
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use convoy_types::CandidateKind;

    use super::*;

    pub(crate) fn pair(kind: CandidateKind, address: &str, round_trip: Option<u64>) -> Pair {
        let address = address.parse().unwrap();
        Pair {
            round_trip: round_trip.map(Duration::from_millis),
            ..Pair::new(Candidate { kind, address })
        }
    }

    #[test]
    fn twelve_probes_come_fast_at_first_and_then_each_second() {
        let mut pair = pair(CandidateKind::Host, "192.0.2.1:1", None);
        pair.begin(Duration::ZERO);
        let mut times = Vec::new();
        while let Some(at) = pair.next {
            pair.probe_sent(times.len() as u64, at);
            times.push(at.as_millis());
        }
        let expected = [
            0, 200, 500, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000,
        ];
        assert_eq!(times, expected);
        assert!(pair.is_silent(Duration::from_secs(2)));
        assert!(!pair.is_silent(Duration::from_secs(1)));
    }

    #[test]
    fn a_reply_counts_once_and_only_for_a_probe_of_this_round() {
        let mut pair = pair(CandidateKind::Host, "192.0.2.1:1", None);
        let ms = Duration::from_millis;
        pair.begin(ms(0));
        pair.probe_sent(7, ms(0));
        assert!(!pair.replied(8, None, ms(30)));
        assert!(pair.replied(7, None, ms(30)));
        assert!(!pair.replied(7, None, ms(31)), "a copy");
        assert!(!pair.replied(!7, None, ms(31)), "a forged copy");
        assert_eq!(pair.round_trip, Some(ms(30)));
        pair.begin(ms(100));
        assert!(!pair.replied(7, None, ms(130)), "of an earlier round");
        assert!(!pair.has_answered());
    }

    #[test]
    fn probes_beside_those_of_a_round_are_a_second_apart_once_answered_or_silent() {
        let ms = Duration::from_millis;
        for (is_answered, expected) in [
            (true, [0, 1_000, 2_000, 3_000, 4_000]),
            (false, [0, 200, 400, 1_400, 2_400]),
        ] {
            let mut pair = pair(CandidateKind::Host, "192.0.2.1:1", None);
            let kept = (0..).step_by(200).filter(|at| {
                pair.keep(ms(*at));
                let is_kept = pair.next.is_some();
                if is_kept {
                    pair.probe_sent(*at, ms(*at));
                }
                if is_answered {
                    pair.replied(*at, None, ms(*at + 10));
                }
                is_kept
            });
            assert_eq!(kept.take(5).collect::<Vec<_>>(), expected);
        }
    }
}
