//! The sessions of a peer: previous, current and next, as in the reference, and one more after a crossing.
//!
//! This side sends only in the current one and receives in all. Unlike in the reference, answering an
//! initiation does not end the previous session, nor does the answer to an initiation that has crossed the
//! peer's: the peer may still send in it, and the answer to the peer may get lost.

use std::time::Duration;

use convoy_noise::Session;

/// Time limit for a peer to use a session that it was offered: less than the time until it calls again.
const PATIENCE: Duration = Duration::from_secs(3);

/// The local indices of sessions that have just ended.
pub(crate) type Ended = [Option<u32>; 4];

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    previous: Option<Box<Session>>,
    /// One more that the peer may send in, once initiations have crossed: then each side sends in its own session.
    crossed: Option<Box<Session>>,
    current: Option<Box<Session>>,
    /// Offered to the peer in an answer; the peer has not used it yet.
    next: Option<Box<Session>>,
    /// The local index of the one in which the peer was last heard.
    heard: Option<u32>,
}

impl Sessions {
    /// The session to send in, even if it has expired.
    pub(crate) fn current(&self) -> Option<&Session> {
        self.current.as_deref()
    }

    /// The session to send in now; `None` if there is none or it has expired.
    pub(crate) fn sending(&mut self, now: Duration) -> Option<&mut Session> {
        self.current.as_deref_mut().filter(|s| s.can_send(now))
    }

    /// The session that the peer addresses by `local`.
    pub(crate) fn find(&mut self, local: u32) -> Option<&mut Session> {
        let all = [
            &mut self.current,
            &mut self.next,
            &mut self.previous,
            &mut self.crossed,
        ];
        let mut all = all.into_iter().flatten().map(|s| &mut **s);
        all.find(|s| s.local == local)
    }

    /// Returns whether the peer has given a session this index: it is in every datagram to the peer.
    pub(crate) fn have_remote(&self, remote: u32) -> bool {
        let all = [&self.current, &self.next, &self.previous, &self.crossed];
        all.into_iter().flatten().any(|s| s.remote == remote)
    }

    /// As [`Self::find`], by shared reference: to seal or open in.
    pub(crate) fn get(&self, local: u32) -> Option<&Session> {
        let all = [&self.current, &self.next, &self.previous, &self.crossed];
        all.into_iter()
            .flatten()
            .map(|s| &**s)
            .find(|s| s.local == local)
    }

    /// Adds the session of a handshake that this side began, as the current one.
    pub(crate) fn complete(&mut self, session: Box<Session>) -> Ended {
        let current = self.current.replace(session);
        self.retire(current)
    }

    /// Adds the session of an answered handshake; it becomes current when the peer uses it.
    pub(crate) fn offer(&mut self, session: Box<Session>) -> Ended {
        [index(self.next.replace(session)), None, None, None]
    }

    /// Returns whether the peer has had the time to use the session that it was offered last, but has not.
    pub(crate) fn is_offer_ignored(&self, now: Duration) -> bool {
        let offered = self.next.as_deref();
        offered.is_some_and(|offered| offered.age(now) >= PATIENCE)
    }

    /// Call when the peer has used session `local`. If it was offered, it becomes the current one; returns
    /// the session that this ends.
    pub(crate) fn confirm(&mut self, local: u32) -> Option<Ended> {
        let next = self.next.take_if(|s| s.local == local);
        let ended = next.map(|next| {
            let current = self.current.replace(next);
            self.retire(current)
        });
        self.heard = Some(local);
        ended
    }

    /// Decides which of the former sessions go on receiving: the one offered to the peer, which may already send in it,
    /// or else the one that was current; and the one that the peer has sent in so far.
    fn retire(&mut self, current: Option<Box<Session>>) -> Ended {
        let mut former = [current, self.previous.take(), self.crossed.take()];
        self.previous = self.next.take().or_else(|| former[0].take());
        let is_heard =
            |s: &Option<Box<Session>>| s.is_some() && s.as_ref().map(|s| s.local) == self.heard;
        let heard = former.iter().position(is_heard).unwrap_or(0);
        self.crossed = former[heard].take();
        let [current, previous, crossed] = former.map(index);
        [current, previous, crossed, None]
    }

    /// Marks all sessions for [`Self::end_former`], as the preshared key has changed.
    pub(crate) fn preshared_key_changed(&mut self) {
        let sessions = [
            &mut self.previous,
            &mut self.crossed,
            &mut self.current,
            &mut self.next,
        ];
        let sessions = sessions.into_iter().flatten();
        sessions.for_each(|session| session.is_former = true);
    }

    /// Returns whether the current session is under the present preshared key, and another is not.
    pub(crate) fn have_former(&self) -> bool {
        let is_former = |session: &Session| session.is_former;
        let others = [&self.previous, &self.crossed, &self.next];
        let mut others = others.into_iter().flatten();
        !self.current().is_none_or(is_former) && others.any(|session| is_former(session))
    }

    /// Ends the sessions under former preshared keys, if the current session is under the present key.
    pub(crate) fn end_former(&mut self) -> Ended {
        if !self.have_former() {
            return Ended::default();
        }
        let former = |slot: &mut Option<Box<Session>>| slot.take_if(|s| s.is_former);
        let others = [&mut self.previous, &mut self.crossed, &mut self.next];
        let [previous, crossed, next] = others.map(|slot| index(former(slot)));
        [previous, crossed, next, None]
    }

    /// Ends all sessions.
    pub(crate) fn clear(&mut self) -> Ended {
        let Self {
            previous,
            crossed,
            current,
            next,
            heard: _,
        } = std::mem::take(self);
        [previous, crossed, current, next].map(index)
    }

    /// The local indices of all sessions.
    #[cfg(test)]
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        let sessions = [&self.previous, &self.crossed, &self.current, &self.next];
        sessions.into_iter().flatten().map(|s| s.local)
    }

    #[cfg(test)]
    pub(crate) fn current_mut(&mut self) -> Option<&mut Session> {
        self.current.as_deref_mut()
    }
}

fn index(ended: Option<Box<Session>>) -> Option<u32> {
    ended.map(|session| session.local)
}

#[cfg(test)]
mod tests {
    use convoy_noise::SessionKeys;

    use super::*;

    const T0: Duration = Duration::from_secs(500);

    fn responder(local: u32) -> Box<Session> {
        session(local, false)
    }

    fn initiator(local: u32) -> Box<Session> {
        session(local, true)
    }

    fn session(local: u32, is_initiator: bool) -> Box<Session> {
        let keys = SessionKeys {
            sealing: [7; 32],
            opening: [7; 32],
        };
        Session::new((local, local), &keys, is_initiator, T0)
    }

    fn current(sessions: &Sessions) -> Option<u32> {
        sessions.current().map(|s| s.local)
    }

    fn known(sessions: &mut Sessions) -> Vec<u32> {
        (1..10).filter(|n| sessions.find(*n).is_some()).collect()
    }

    #[test]
    fn an_offered_session_becomes_current_once_the_peer_has_used_it() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.offer(responder(1)), Ended::default());
        assert_eq!(current(&sessions), None);
        assert!(sessions.find(1).is_some());
        assert_eq!(sessions.confirm(1), Some(Ended::default()));
        assert_eq!(sessions.confirm(1), None, "only the first use confirms");
        assert_eq!(current(&sessions), Some(1));
    }

    #[test]
    fn a_late_datagram_of_an_older_session_does_not_make_it_current_again() {
        let mut sessions = Sessions::default();
        sessions.complete(initiator(1));
        sessions.complete(initiator(2));
        assert_eq!(sessions.confirm(1), None);
        assert_eq!(current(&sessions), Some(2));
    }

    #[test]
    fn each_session_ends_once_and_three_are_kept() {
        let mut sessions = Sessions::default();
        sessions.complete(initiator(1));
        sessions.complete(initiator(2));
        assert_eq!(sessions.complete(initiator(3)), [None, Some(1), None, None]);
        sessions.offer(responder(4));
        assert_eq!(known(&mut sessions), [2, 3, 4]);
        assert_eq!(sessions.offer(responder(5)), [Some(4), None, None, None]);
        assert_eq!(sessions.confirm(5), Some([None, Some(2), None, None]));
        assert_eq!(known(&mut sessions), [3, 5]);
        assert_eq!(sessions.clear(), [Some(3), None, Some(5), None]);
        assert_eq!(known(&mut sessions), [0; 0]);
    }

    #[test]
    fn if_initiations_cross_the_former_session_and_the_offered_one_go_on_receiving() {
        let mut sessions = Sessions::default();
        sessions.complete(initiator(1));
        sessions.offer(responder(2));
        // The peer sends in the first one until it has the answer to its own initiation.
        assert_eq!(sessions.complete(initiator(3)), Ended::default());
        assert_eq!(current(&sessions), Some(3));
        assert_eq!(known(&mut sessions), [1, 2, 3]);
        sessions.offer(responder(4));
        assert_eq!(known(&mut sessions), [1, 2, 3, 4]);
        let ended = sessions.confirm(4).unwrap();
        assert_eq!(ended, [None, Some(2), Some(1), None]);
        assert_eq!(known(&mut sessions), [3, 4]);
    }

    #[test]
    fn after_a_crossing_the_peers_own_session_outlasts_the_next_renewal() {
        for crosses_again in [false, true] {
            let mut sessions = Sessions::default();
            sessions.complete(initiator(1));
            sessions.offer(responder(2));
            sessions.complete(initiator(3));
            // The peer sends in the session that it began, this side in its own.
            assert_eq!(sessions.confirm(2), None);
            assert_eq!(current(&sessions), Some(3));
            if crosses_again {
                sessions.offer(responder(4));
            }
            sessions.complete(initiator(5));
            assert!(sessions.find(2).is_some(), "{crosses_again}");
            assert!(sessions.find(1).is_none(), "{crosses_again}");
            // The peer uses a new one, and nobody the others.
            assert_eq!(sessions.confirm(5), None);
            sessions.complete(initiator(6));
            sessions.confirm(6);
            sessions.complete(initiator(7));
            assert_eq!(known(&mut sessions), [6, 7], "{crosses_again}");
        }
    }

    #[test]
    fn sessions_under_a_former_preshared_key_serve_until_there_is_one_under_the_present() {
        let mut sessions = Sessions::default();
        sessions.complete(initiator(1));
        sessions.complete(initiator(2));
        sessions.preshared_key_changed();
        assert_eq!(sessions.end_former(), Ended::default());
        sessions.offer(responder(3));
        assert_eq!(known(&mut sessions), [1, 2, 3]);
        sessions.confirm(3);
        assert_eq!(sessions.end_former(), [Some(2), None, None, None]);
        assert_eq!(known(&mut sessions), [3]);
    }

    #[test]
    fn a_session_under_a_former_preshared_key_ends_after_a_crossing_as_well() {
        let mut sessions = Sessions::default();
        sessions.complete(initiator(1));
        sessions.preshared_key_changed();
        // Both initiations are under the present key.
        sessions.offer(responder(2));
        sessions.complete(initiator(3));
        assert_eq!(known(&mut sessions), [1, 2, 3]);
        assert!(sessions.have_former());
        assert_eq!(sessions.end_former(), [None, Some(1), None, None]);
        assert_eq!(known(&mut sessions), [2, 3]);
    }
}
