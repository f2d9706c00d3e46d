//! Facts about a peer from its handshakes: since when it answers, how fast, and how often it did not.

use std::time::{Duration, SystemTime};

use convoy_noise::REJECT_AFTER_TIME;

use crate::config::Handshakes;

/// The handshakes with a peer so far; times are since boot.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    /// When the last one completed.
    latest: Option<Duration>,
    /// When the first one completed since which there has always been a session.
    since: Option<Duration>,
    round_trip: Option<Duration>,
    unanswered: u32,
    unauthentic: u32,
    shown_latest: Shown,
    shown_since: Shown,
}

/// A time, and its wall-clock time as first shown, which stays even if the clock is set.
#[derive(Debug, Default)]
struct Shown(Option<(Duration, SystemTime)>);

impl Contact {
    /// Call when a handshake has completed.
    pub(crate) fn completed(&mut self, now: Duration) {
        let is_within = |latest| now.saturating_sub(latest) < REJECT_AFTER_TIME;
        if !self.latest.is_some_and(is_within) {
            self.since = None;
        }
        self.since.get_or_insert(now);
        self.latest = Some(now);
        self.forget_failures();
    }

    /// Call when an initiation was answered after `time`.
    pub(crate) fn answered_within(&mut self, time: Option<Duration>) {
        self.round_trip = time.or(self.round_trip);
    }

    /// Call when an initiation got no answer in time.
    pub(crate) fn was_unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Call when an answer was not authentic.
    pub(crate) fn was_unauthentic(&mut self) {
        self.unauthentic = self.unauthentic.saturating_add(1);
    }

    /// Call when the endpoint or the keys have changed: earlier failures say nothing of the new ones.
    pub(crate) fn forget_failures(&mut self) {
        self.unanswered = 0;
        self.unauthentic = 0;
    }

    /// Call when all sessions have ended.
    pub(crate) fn ended(&mut self) {
        self.since = None;
    }

    /// The time since the last handshake completed.
    pub(crate) fn since_latest(&self, now: Duration) -> Option<Duration> {
        self.latest.map(|latest| now.saturating_sub(latest))
    }

    /// Returns when the last handshake completed; `now` and `wall` are the same moment by both clocks.
    pub(crate) fn latest(&mut self, now: Duration, wall: SystemTime) -> Option<SystemTime> {
        self.shown_latest.wall_time(self.latest, now, wall)
    }

    /// All the rest. `is_connected`: whether there is a session; `is_awaiting` and `is_late`: whether an initiation
    /// awaits its response, and for too long.
    pub(crate) fn handshakes(
        &mut self,
        is_connected: bool,
        is_awaiting: bool,
        is_late: bool,
        (now, wall): (Duration, SystemTime),
    ) -> Handshakes {
        let since = self.since.filter(|_| is_connected);
        Handshakes {
            connected_since: self.shown_since.wall_time(since, now, wall),
            round_trip: self.round_trip,
            is_awaiting,
            unanswered: self.unanswered + u32::from(is_awaiting && is_late),
            unauthentic: self.unauthentic,
        }
    }
}

impl Shown {
    fn wall_time(
        &mut self,
        at: Option<Duration>,
        now: Duration,
        wall: SystemTime,
    ) -> Option<SystemTime> {
        let shown = self.0.take();
        self.0 = at.map(|at| match shown {
            Some(shown) if shown.0 == at => shown,
            _ => (at, wall - now.saturating_sub(at)),
        });
        self.0.map(|(_, wall)| wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_peer_is_connected_since_the_first_of_handshakes_without_a_gap() {
        let mut contact = Contact::default();
        let mut since = |at: u64| {
            let now = Duration::from_secs(at);
            contact.completed(now);
            let all = contact.handshakes(true, false, false, (now, SystemTime::UNIX_EPOCH + now));
            let since = all.connected_since.unwrap();
            since
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_secs()
        };
        let seen = [1000, 1120, 1299, 1479, 1600].map(&mut since);
        assert_eq!(seen, [1000, 1000, 1000, 1479, 1479]);
    }

    #[test]
    fn without_a_session_it_is_not_connected() {
        let mut contact = Contact::default();
        let shown = |contact: &mut Contact, is_connected| {
            let all = (9 * SECOND, SystemTime::UNIX_EPOCH + 9 * SECOND);
            contact.handshakes(is_connected, false, false, all)
        };
        contact.completed(SECOND);
        assert!(shown(&mut contact, true).connected_since.is_some());
        assert_eq!(shown(&mut contact, false).connected_since, None);
        contact.ended();
        assert_eq!(shown(&mut contact, true).connected_since, None);
    }

    #[test]
    fn failures_count_until_a_handshake_completes() {
        let mut contact = Contact::default();
        let counts = |contact: &mut Contact, is_late| {
            let all = (SECOND, SystemTime::UNIX_EPOCH);
            let shown = contact.handshakes(false, true, is_late, all);
            (shown.unanswered, shown.unauthentic)
        };
        contact.was_unanswered();
        contact.was_unauthentic();
        contact.was_unauthentic();
        assert_eq!(counts(&mut contact, false), (1, 2));
        assert_eq!(counts(&mut contact, true), (2, 2));
        contact.completed(SECOND);
        assert_eq!(counts(&mut contact, false), (0, 0));
    }
}
