//! The route back to a peer: the state behind its sticky source address.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_types::Arrival;
use convoy_types::{Rate, TokenBucket};

/// Least time between two questions about one peer.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(100);
/// Questions about all peers together: each costs a netlink round trip.
const ALL_QUESTIONS: Rate = Rate::per_second(1_000, 256);
/// Time for datagrams that were sent to a former address before the peer's answer, but are overtaken by it.
const STRAGGLING: Duration = Duration::from_secs(5);
/// Answers remembered for each peer: two uplinks with an address of each family.
const ANSWERS: usize = 4;

/// The way by which a peer's datagrams arrive; an answer about it holds as long as none of these fields changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) to: SocketAddr,
    pub(crate) arrival: Arrival,
    /// The number of route changes so far.
    pub(crate) routes: u32,
}

impl Way {
    /// Returns whether only routes have changed.
    fn is_still(&self, other: &Self) -> bool {
        (self.to, self.arrival) == (other.to, other.arrival)
    }

    /// Returns whether the two differ in nothing but the peer's port, on which few routes depend.
    fn is_like(&self, other: &Self) -> bool {
        let of = |way: &Self| (way.to.ip(), way.arrival, way.routes);
        of(self) == of(other)
    }
}

/// The questions about all peers.
#[derive(Debug, Default)]
pub(crate) struct RouteQuestions {
    /// The number of route changes so far.
    pub(crate) routes: u32,
    /// Peers with a question that waits to be polled.
    pub(crate) waiting: VecDeque<usize>,
    bucket: TokenBucket,
}

/// The source address to use until the kernel has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The address that the peer sends to.
    Sticky,
    /// The kernel's choice: the peer was found behind another interface.
    Kernel,
    /// The address in use: the peer has not moved.
    Unchanged,
}

/// Whether the route back to a peer has been asked about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReturnRoute {
    /// The way of the peer's last datagram, unless its source address is to be forgotten.
    way: Option<Way>,
    /// Whether a question about [`Self::way`] waits to be polled.
    is_waiting: bool,
    /// Whether it came too soon after other questions, and is to be asked at the next use.
    is_owed: bool,
    last_asked: Option<Duration>,
    /// The last answers: whether the route leads out by the interface of the arrival.
    answers: [Option<(Way, bool)>; ANSWERS],
    /// The place of the next answer.
    next_answer: usize,
    /// The address of this host that a new handshake has left: what still arrives there was sent before the peer
    /// could know better.
    left: Option<IpAddr>,
    /// Until when [`Self::left`] holds; `None` while the answer is awaited.
    left_until: Option<Duration>,
}

impl ReturnRoute {
    /// Returns whether nothing is to be asked about `way`, as the peer's last datagram took the same.
    pub(crate) fn is_known(&self, way: Option<Way>) -> bool {
        self.way == way && !self.is_owed
    }

    /// Records the return route of a datagram from `peer`, and asks about it unless the answer is known.
    pub(crate) fn follow(
        &mut self,
        peer: usize,
        way: Option<Way>,
        questions: &mut RouteQuestions,
        now: Duration,
    ) -> Until {
        let before = std::mem::replace(&mut self.way, way);
        self.is_owed = false;
        let Some(way) = way else {
            return Until::Kernel;
        };
        let until = match self.answer_for(|known| *known == way) {
            Some(until) => return until,
            None => self.answer_for(|known| known.is_like(&way)),
        };
        self.ask(peer, questions, now);
        match before {
            Some(before) if before.is_still(&way) => Until::Unchanged,
            _ => until.unwrap_or(Until::Sticky),
        }
    }

    /// Asks again if routes have changed, or if a question has been put off.
    pub(crate) fn ask_if_due(
        &mut self,
        peer: usize,
        questions: &mut RouteQuestions,
        now: Duration,
    ) {
        if let Some(way) = &mut self.way
            && (self.is_owed || way.routes != questions.routes)
        {
            way.routes = questions.routes;
            self.ask(peer, questions, now);
        }
    }

    /// Takes the question that waits.
    pub(crate) fn take_question(&mut self) -> Option<Way> {
        self.is_waiting = false;
        self.way
    }

    /// Records an answer; returns whether it is about the route in use.
    pub(crate) fn answer(&mut self, way: Way, is_same_interface: bool) -> bool {
        self.answers[self.next_answer] = Some((way, is_same_interface));
        self.next_answer = (self.next_answer + 1) % ANSWERS;
        self.way == Some(way)
    }

    /// Forgets the way, so that the next datagram is one from elsewhere.
    pub(crate) fn forget_way(&mut self) {
        self.way = None;
        self.is_owed = false;
    }

    /// Forgets the route and all answers.
    pub(crate) fn forget(&mut self) {
        self.forget_way();
        self.answers = [None; ANSWERS];
    }

    /// Forgets all, and leaves the address in use until [`Self::answered`] or [`Self::settle`].
    pub(crate) fn leave(&mut self) {
        self.left = self.way.map(|way| way.arrival.address).or(self.left);
        self.left_until = None;
        self.forget();
    }

    /// Returns whether a datagram on this route says nothing about where the peer sends now. `is_awaited`: whether a
    /// handshake is under way.
    pub(crate) fn has_left(&self, way: Option<Way>, is_awaited: bool, now: Duration) -> bool {
        let holds = self.left_until.map_or(is_awaited, |until| now < until);
        holds && self.left.is_some() && self.left == way.map(|way| way.arrival.address)
    }

    /// Call when the handshake that has left an address is answered. If the answer came to another address, datagrams to
    /// the one that was left are late ones for a while.
    pub(crate) fn answered(&mut self, now: Duration) {
        let at = self.way.map(|way| way.arrival.address);
        let is_elsewhere = self.left.is_some() && at.is_some() && at != self.left;
        match self.left_until {
            None if is_elsewhere => self.left_until = Some(now + STRAGGLING),
            Some(until) if now < until => {}
            _ => self.settle(),
        }
    }

    /// Forgets the address that was left: datagrams count again wherever they arrive.
    pub(crate) fn settle(&mut self) {
        (self.left, self.left_until) = (None, None);
    }

    /// Asks about the way, now or at its next use. A question that still waits is about the newest way.
    fn ask(&mut self, peer: usize, questions: &mut RouteQuestions, now: Duration) {
        if self.is_waiting {
            self.is_owed = false;
            return;
        }
        let is_too_soon = |at: Duration| now.saturating_sub(at) < BETWEEN_QUESTIONS;
        let is_too_soon = self.last_asked.is_some_and(is_too_soon);
        self.is_owed = is_too_soon || !questions.bucket.take(ALL_QUESTIONS, now);
        if !self.is_owed {
            questions.waiting.push_back(peer);
            self.is_waiting = true;
            self.last_asked = Some(now);
        }
    }

    fn answer_for(&self, is_about: impl Fn(&Way) -> bool) -> Option<Until> {
        let mut answers = self.answers.iter().flatten();
        let (_, is_same_interface) = answers.find(|(way, _)| is_about(way))?;
        Some(match is_same_interface {
            true => Until::Sticky,
            false => Until::Kernel,
        })
    }
}
