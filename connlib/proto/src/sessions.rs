//! The sessions of a peer: their indices, ages and roles, but not their keys.
//!
//! [`crate::noise`] keeps the keys of the last [`SESSIONS`] sessions and chooses the one to send in.
//! This table follows that choice by the same rule, to enforce ages and message counts (WireGuard
//! paper, §6.2).

use std::time::Duration;

use crate::noise::SESSIONS;

/// Age at which the initiator begins a new handshake when it sends.
pub(crate) const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// Age at which a session neither sends nor receives any more.
pub(crate) const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Messages after which a sender begins a new handshake.
pub(crate) const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// Messages after which a session neither sends nor receives any more.
pub(crate) const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// One session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The index by which the peer addresses this session.
    pub(crate) local: u32,
    /// When it was derived (time since boot).
    pub(crate) established: Duration,
    /// Whether this side began the handshake.
    pub(crate) initiator: bool,
    /// Messages sent in this session.
    pub(crate) sent: u64,
    /// The session's place in the order of derivation.
    order: u64,
}

impl Session {
    pub(crate) fn is_alive(&self, now: Duration) -> bool {
        now.saturating_sub(self.established) < REJECT_AFTER_TIME
    }

    pub(crate) fn can_send(&self, now: Duration) -> bool {
        self.is_alive(now) && self.sent < REJECT_AFTER_MESSAGES
    }

    /// Whether to begin a new handshake when sending now.
    pub(crate) fn wants_rekey(&self, now: Duration) -> bool {
        let too_many = self.sent >= REKEY_AFTER_MESSAGES;
        let too_old = self.initiator && now.saturating_sub(self.established) >= REKEY_AFTER_TIME;
        too_many || too_old
    }
}

/// The sessions that a peer's datagrams may belong to.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    slots: [Option<Session>; SESSIONS as usize],
    current: Option<usize>,
    derived: u64,
}

impl Sessions {
    /// The session to send in.
    pub(crate) fn current(&self) -> Option<&Session> {
        self.slots[self.current?].as_ref()
    }

    /// Whether session `local` would replace the current one.
    pub(crate) fn is_current_slot(&self, local: u32) -> bool {
        self.current == Some(slot(local))
    }

    /// Counts a message sent in the current session; returns whether to begin a new handshake.
    pub(crate) fn count_sent(&mut self, now: Duration) -> bool {
        let Some(session) = self.current.and_then(|slot| self.slots[slot].as_mut()) else {
            return false;
        };
        session.sent += 1;
        session.wants_rekey(now)
    }

    /// The session that the peer addresses by `local`.
    pub(crate) fn find(&self, local: u32) -> Option<&Session> {
        self.slots[slot(local)]
            .as_ref()
            .filter(|s| s.local == local)
    }

    /// Adds the session of a completed handshake that this side began, and makes it the current one.
    pub(crate) fn complete(&mut self, local: u32, now: Duration) {
        self.insert(local, true, now);
        self.current = Some(slot(local));
    }

    /// Adds the session of an answered handshake: it becomes current once the peer has used it.
    pub(crate) fn offer(&mut self, local: u32, now: Duration) {
        self.insert(local, false, now);
        if self.current == Some(slot(local)) {
            self.current = None;
        }
    }

    /// Notes that the peer has used session `local`; returns whether that made it the current one.
    pub(crate) fn confirm(&mut self, local: u32) -> bool {
        let new = slot(local);
        if self.current == Some(new) {
            return false;
        }
        let order = |index: usize| self.slots[index].map(|s| s.order);
        let is_newer = match self.current.and_then(order) {
            Some(current) => order(new) >= Some(current),
            None => true,
        };
        if is_newer {
            self.current = Some(new);
        }
        is_newer
    }

    /// Leaves no session to send in.
    pub(crate) fn forget_current(&mut self) {
        self.current = None;
    }

    /// Empties the slot of `local`, which a session that must not be used has taken.
    pub(crate) fn forget(&mut self, local: u32) {
        self.slots[slot(local)] = None;
        if self.current == Some(slot(local)) {
            self.current = None;
        }
    }

    /// Whether there are no sessions.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Forgets all sessions.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Pretends that the current session has sent this many messages.
    #[cfg(test)]
    pub(crate) fn set_sent(&mut self, sent: u64) {
        if let Some(session) = self.current.and_then(|slot| self.slots[slot].as_mut()) {
            session.sent = sent;
        }
    }

    fn insert(&mut self, local: u32, initiator: bool, now: Duration) {
        self.derived += 1;
        self.slots[slot(local)] = Some(Session {
            local,
            established: now,
            initiator,
            sent: 0,
            order: self.derived,
        });
    }
}

fn slot(local: u32) -> usize {
    (local % SESSIONS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(500);

    #[test]
    fn an_offered_session_becomes_current_once_the_peer_has_used_it() {
        let mut sessions = Sessions::default();
        sessions.offer(0x101, T0);
        assert_eq!(sessions.current(), None);
        assert!(sessions.confirm(0x101));
        assert!(!sessions.confirm(0x101), "only the first use confirms");
        assert_eq!(sessions.current().map(|s| s.local), Some(0x101));
    }

    #[test]
    fn a_late_datagram_of_an_older_session_does_not_make_it_current_again() {
        let mut sessions = Sessions::default();
        sessions.complete(0x101, T0);
        sessions.complete(0x102, T0 + Duration::from_secs(120));
        assert!(!sessions.confirm(0x101));
        assert_eq!(sessions.current().map(|s| s.local), Some(0x102));
    }

    #[test]
    fn age_ends_a_session_after_the_initiator_wants_to_rekey() {
        let mut sessions = Sessions::default();
        sessions.complete(0x101, T0);
        let session = *sessions.current().unwrap();
        assert!(!session.wants_rekey(T0 + REKEY_AFTER_TIME - Duration::from_nanos(1)));
        assert!(session.wants_rekey(T0 + REKEY_AFTER_TIME));
        assert!(session.can_send(T0 + REJECT_AFTER_TIME - Duration::from_nanos(1)));
        assert!(!session.can_send(T0 + REJECT_AFTER_TIME));
        let responder = Session {
            initiator: false,
            ..session
        };
        assert!(!responder.wants_rekey(T0 + REKEY_AFTER_TIME));
    }

    #[test]
    fn the_message_limits_end_a_session_whatever_the_role() {
        let mut session = Session {
            local: 1,
            established: T0,
            initiator: false,
            sent: REKEY_AFTER_MESSAGES,
            order: 1,
        };
        assert!(session.wants_rekey(T0) && session.can_send(T0));
        session.sent = REJECT_AFTER_MESSAGES;
        assert!(!session.can_send(T0));
    }

    #[test]
    fn an_index_of_another_session_in_the_same_slot_is_not_found() {
        let mut sessions = Sessions::default();
        sessions.complete(0x101, T0);
        assert!(sessions.find(0x109).is_none());
        assert!(sessions.find(0x101).is_some());
    }
}
