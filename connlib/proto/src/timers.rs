//! The timers of one peer: WireGuard paper §6.1–§6.5, as refined by the reference.
//!
//! A timer is an optional point in time. Events set and clear it, and [`Timers::due`] returns the
//! actions that are due. [`crate::deadlines`] keeps one heap for the timers of all peers.

use std::time::Duration;

use convoy_noise::REJECT_AFTER_TIME;

/// Time after which an unanswered initiation is retransmitted.
pub(crate) const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time between two initiations, for whatever reason: a peer drops one that comes within 20 ms of another,
/// and no longer takes the answer to the other.
const BETWEEN_INITIATIONS: Duration = Duration::from_millis(40);
/// Bound of the attempts at a handshake: with the reference's counting they end after 20 initiations, about 100 s.
pub(crate) const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
/// Silence after which a keepalive acknowledges received data.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bound of the random time added to a retransmission.
const JITTER: Duration = Duration::from_millis(333);
/// How long datagrams under a former preshared key may be under way once there is a session under the present one.
const FORMER_UNDER_WAY: Duration = Duration::from_secs(5);

/// Time without a new session after which all keys are wiped (WireGuard paper §6.3).
const ERASE_AFTER: Duration = Duration::from_secs(3 * REJECT_AFTER_TIME.as_secs());

const ATTEMPTS: u32 = (REKEY_ATTEMPT_TIME.as_secs() / REKEY_TIMEOUT.as_secs()) as u32;

/// The action of a timer that fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Retransmit the initiation.
    Retransmit,
    /// Give up the handshake: drop the packets held for it.
    GiveUp,
    /// Data went unanswered: begin a handshake.
    NewHandshake,
    /// Send an empty data message.
    Keepalive,
    /// Nothing under a former preshared key is under way any more: end its sessions.
    EndFormer,
    /// No new session for three times Reject-After-Time: wipe all keys.
    EraseKeys,
}

/// The timers of one peer, as times since boot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    retransmit: Option<Duration>,
    new_handshake: Option<Duration>,
    keepalive: Option<Duration>,
    persistent_keepalive: Option<Duration>,
    end_former: Option<Duration>,
    erase: Option<Duration>,
    persistent_interval: Duration,
    attempts: u32,
    /// Initiations since the last handshake that was completed, whatever has begun them.
    unanswered: u32,
    /// The last initiation or answer that forbids another initiation for Rekey-Timeout.
    last_initiation: Option<Duration>,
    last_sent_initiation: Option<Duration>,
    /// The peer's earliest entry in the heap of deadlines.
    pub(crate) armed: Option<Duration>,
}

impl Timers {
    /// The earliest time at which [`Self::due`] may return an action.
    pub(crate) fn next(&self) -> Option<Duration> {
        [
            self.retransmit,
            self.new_handshake,
            self.keepalive,
            self.persistent_keepalive,
            self.end_former,
            self.erase,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the next action due at `now`; call until it is `None`.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Due> {
        if take_due(&mut self.retransmit, now) {
            let exhausted = self.attempts > ATTEMPTS + 1;
            return Some(if exhausted {
                self.keepalive = None;
                Due::GiveUp
            } else {
                Due::Retransmit
            });
        }
        if take_due(&mut self.new_handshake, now) {
            return Some(Due::NewHandshake);
        }
        if take_due(&mut self.keepalive, now) || take_due(&mut self.persistent_keepalive, now) {
            return Some(Due::Keepalive);
        }
        if take_due(&mut self.end_former, now) {
            return Some(Due::EndFormer);
        }
        take_due(&mut self.erase, now).then_some(Due::EraseKeys)
    }

    /// Sets the seconds between persistent keepalives; zero turns them off. If they were off, the first is due at once.
    pub(crate) fn set_persistent_keepalive(&mut self, seconds: u16, now: Duration) {
        let turned_on = self.persistent_interval.is_zero() && seconds > 0;
        self.persistent_interval = Duration::from_secs(seconds.into());
        if turned_on {
            self.start(now);
        } else if seconds == 0 {
            self.persistent_keepalive = None;
        }
    }

    /// Call when the link comes up: a persistent keepalive is due at once.
    pub(crate) fn start(&mut self, now: Duration) {
        if !self.persistent_interval.is_zero() {
            self.persistent_keepalive = Some(now);
        }
    }

    /// Call when the link goes down and all keys are wiped: stops all timers.
    pub(crate) fn stop(&mut self) {
        *self = Self {
            persistent_interval: self.persistent_interval,
            armed: self.armed,
            ..Self::default()
        };
    }

    pub(crate) fn persistent_interval(&self) -> Duration {
        self.persistent_interval
    }

    /// Returns whether an initiation may be sent: at most one in Rekey-Timeout.
    pub(crate) fn may_initiate(&self, now: Duration) -> bool {
        now >= self.next_initiation()
    }

    fn next_initiation(&self) -> Duration {
        let regular = self.last_initiation.map(|last| last + REKEY_TIMEOUT);
        let sent = self.last_sent_initiation;
        let soonest = sent.map(|sent| sent + BETWEEN_INITIATIONS);
        regular.max(soonest).unwrap_or_default()
    }

    /// Returns whether the last initiation was sent long enough ago to be retransmitted.
    pub(crate) fn is_answer_late(&self, now: Duration) -> bool {
        self.since_initiation(now)
            .is_some_and(|time| time >= REKEY_TIMEOUT)
    }

    /// The time since the last initiation.
    pub(crate) fn since_initiation(&self, now: Duration) -> Option<Duration> {
        let sent = self.last_sent_initiation;
        sent.map(|sent| now.saturating_sub(sent))
    }

    /// Call when an event other than a retransmission begins a handshake: resets the count of attempts.
    pub(crate) fn begin_attempts(&mut self) {
        self.attempts = 0;
    }

    /// Initiations sent since [`Self::begin_attempts`].
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Initiations sent since a handshake was completed, or the endpoint has changed. Packets that wait do not reset it,
    /// unlike the count of attempts.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Ends the attempts at a handshake.
    pub(crate) fn give_up(&mut self) {
        self.retransmit = None;
        self.new_handshake = None;
    }

    /// Call when the endpoint or the keys have changed: permits an initiation at once.
    pub(crate) fn allow_initiation(&mut self) {
        self.last_initiation = None;
        self.unanswered = 0;
    }

    /// Call when a new handshake is to begin at `at`, however short the time since the last.
    pub(crate) fn initiate_at(&mut self, at: Duration) {
        self.begin_attempts();
        self.allow_initiation();
        self.retransmit = Some(at);
    }

    /// Call when an initiation is too soon after the last one or after an answer: schedules a retry.
    pub(crate) fn initiate_later(&mut self) {
        if self.last_initiation.is_none() {
            // One is permitted sooner than the retransmission.
            self.retransmit = None;
        }
        let at = self.next_initiation();
        self.retransmit.get_or_insert(at);
    }

    /// Call after answering an initiation: delays a handshake of this side by Rekey-Timeout.
    pub(crate) fn response_sent(&mut self, now: Duration) {
        self.last_initiation = Some(now);
        self.authenticated_sent(now);
    }

    pub(crate) fn initiation_sent(&mut self, now: Duration, jitter: Duration) {
        self.attempts += 1;
        self.unanswered = self.unanswered.saturating_add(1);
        self.last_initiation = Some(now);
        self.last_sent_initiation = Some(now);
        self.retransmit = Some(now + REKEY_TIMEOUT + jitter);
        self.authenticated_sent(now);
    }

    /// Call when a handshake completes: on the response, or on the initiator's first data message.
    pub(crate) fn handshake_complete(&mut self) {
        self.retransmit = None;
        self.attempts = 0;
        self.unanswered = 0;
        self.answered();
    }

    /// Call after receiving any data message. An initiation is no answer: a peer that hears nothing of this side
    /// sends one after the other.
    pub(crate) fn answered(&mut self) {
        self.new_handshake = None;
    }

    /// Call when a session begins and there are others under a former preshared key.
    pub(crate) fn former_replaced(&mut self, now: Duration) {
        self.end_former = Some(now + FORMER_UNDER_WAY);
    }

    /// Call when session keys have been derived.
    pub(crate) fn session_derived(&mut self, now: Duration) {
        self.erase = Some(now + ERASE_AFTER);
    }

    /// Call after giving up a handshake.
    pub(crate) fn gave_up(&mut self, now: Duration) {
        self.erase.get_or_insert(now + ERASE_AFTER);
    }

    /// Call after sending a data message with a packet.
    pub(crate) fn data_sent(&mut self, now: Duration, jitter: impl FnOnce() -> Duration) {
        self.new_handshake
            .get_or_insert_with(|| now + KEEPALIVE_TIMEOUT + REKEY_TIMEOUT + jitter());
        self.authenticated_sent(now);
    }

    /// Call after receiving a data message with a packet.
    pub(crate) fn data_received(&mut self, now: Duration) {
        self.keepalive.get_or_insert(now + KEEPALIVE_TIMEOUT);
    }

    /// Call after sending any message that the peer can authenticate.
    pub(crate) fn authenticated_sent(&mut self, now: Duration) {
        self.keepalive = None;
        self.traversed(now);
    }

    /// Call after receiving any authenticated message.
    pub(crate) fn authenticated_received(&mut self, now: Duration) {
        self.traversed(now);
    }

    /// Restarts the persistent keepalive: call when a message was sent or received, or could not be sent.
    pub(crate) fn traversed(&mut self, now: Duration) {
        if !self.persistent_interval.is_zero() {
            self.persistent_keepalive = Some(now + self.persistent_interval);
        }
    }
}

/// A random time of up to a third of a second, so that two peers do not keep colliding.
pub(crate) fn jitter() -> Duration {
    rand::random_range(Duration::ZERO..=JITTER)
}

fn take_due(timer: &mut Option<Duration>, now: Duration) -> bool {
    timer.take_if(|at| *at <= now).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(1000);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_unanswered_initiation_is_retransmitted_for_ninety_seconds_then_given_up() {
        let mut timers = Timers::default();
        timers.begin_attempts();
        let mut now = T0;
        let mut sent = 0;
        loop {
            timers.initiation_sent(now, JITTER);
            sent += 1;
            now = timers.next().unwrap();
            match timers.due(now) {
                Some(Due::Retransmit) => {}
                other => {
                    assert_eq!(other, Some(Due::GiveUp));
                    break;
                }
            }
        }
        assert_eq!(sent, 20, "the first and nineteen more, as in the reference");
        assert!(now - T0 >= REKEY_ATTEMPT_TIME);
    }

    #[test]
    fn received_data_is_answered_by_one_keepalive_after_ten_seconds_of_silence() {
        let mut timers = Timers::default();
        timers.data_received(T0);
        assert_eq!(timers.due(T0 + 9 * SECOND), None);
        assert_eq!(timers.due(T0 + 10 * SECOND), Some(Due::Keepalive));
        timers.authenticated_sent(T0 + 10 * SECOND);
        assert_eq!(timers.next(), None, "idle peers do not ping each other");
    }

    #[test]
    fn sending_data_makes_a_keepalive_unnecessary() {
        let mut timers = Timers::default();
        timers.data_received(T0);
        timers.data_sent(T0 + SECOND, || Duration::ZERO);
        assert_eq!(timers.due(T0 + 10 * SECOND), None);
    }

    #[test]
    fn data_unanswered_for_fifteen_seconds_begins_a_handshake() {
        let mut timers = Timers::default();
        timers.data_sent(T0, || Duration::ZERO);
        timers.data_sent(T0 + 14 * SECOND, || Duration::ZERO);
        assert_eq!(timers.due(T0 + 15 * SECOND), Some(Due::NewHandshake));

        timers.data_sent(T0, || Duration::ZERO);
        timers.authenticated_received(T0 + SECOND);
        assert_eq!(timers.next(), Some(T0 + 15 * SECOND));
        timers.answered();
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_persistent_keepalive_counts_from_the_last_traffic_either_way() {
        let mut timers = Timers::default();
        timers.set_persistent_keepalive(25, T0);
        assert_eq!(timers.due(T0), Some(Due::Keepalive));
        timers.authenticated_received(T0);
        timers.authenticated_sent(T0 + 20 * SECOND);
        assert_eq!(timers.due(T0 + 44 * SECOND), None);
        assert_eq!(timers.due(T0 + 45 * SECOND), Some(Due::Keepalive));
        timers.authenticated_sent(T0 + 45 * SECOND);
        timers.set_persistent_keepalive(10, T0 + 46 * SECOND);
        assert_eq!(
            timers.due(T0 + 46 * SECOND),
            None,
            "already on, so not due at once"
        );
    }

    #[test]
    fn keys_are_erased_after_three_session_lifetimes() {
        let mut timers = Timers::default();
        timers.session_derived(T0);
        assert_eq!(timers.due(T0 + 539 * SECOND), None);
        assert_eq!(timers.due(T0 + 540 * SECOND), Some(Due::EraseKeys));
    }

    #[test]
    fn initiations_are_at_least_five_seconds_apart() {
        let mut timers = Timers::default();
        assert!(timers.may_initiate(T0));
        timers.initiation_sent(T0, Duration::ZERO);
        assert!(!timers.may_initiate(T0 + 4 * SECOND));
        assert!(timers.may_initiate(T0 + 5 * SECOND));
    }
}
