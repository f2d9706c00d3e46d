//! The route back to a peer: the state behind its sticky source address.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use convoy_datagram::Arrival;

use crate::token_bucket::{Rate, TokenBucket};

/// Least time between two questions about one peer.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(100);
/// Questions about all peers together: each costs a netlink round trip.
const ALL_QUESTIONS: Rate = Rate::per_second(1_000, 256);

/// A question about a route; its answer holds as long as none of these fields changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) to: SocketAddr,
    pub(crate) arrival: Arrival,
    /// The number of route changes so far.
    pub(crate) routes: u32,
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

/// The outcome of [`ReturnRoute::ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// The question waits to be polled.
    Now,
    /// Other peers have raised too many: the last answer holds until the next use.
    Later,
    /// The peer keeps moving and raises questions too often: the kernel chooses the source.
    TooSoon,
}

/// Whether the route back to a peer has been asked about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReturnRoute {
    /// The last question; its answer is in the endpoint.
    pub(crate) asked: Option<Asked>,
    /// Whether the question waits to be polled.
    pub(crate) is_waiting: bool,
    last_asked: Option<Duration>,
}

impl ReturnRoute {
    /// Records a new question about `peer`, if it may be asked now.
    pub(crate) fn ask(
        &mut self,
        peer: usize,
        asked: Asked,
        questions: &mut RouteQuestions,
        now: Duration,
    ) -> Asking {
        let is_too_soon = |at: Duration| now.saturating_sub(at) < BETWEEN_QUESTIONS;
        if self.is_waiting || self.last_asked.is_some_and(is_too_soon) {
            self.asked = None;
            return Asking::TooSoon;
        }
        if !questions.bucket.take(ALL_QUESTIONS, now) {
            let is_same = |last: &Asked| (last.to, last.arrival) == (asked.to, asked.arrival);
            self.asked = self.asked.filter(is_same);
            return match self.asked {
                Some(_) => Asking::Later,
                None => Asking::TooSoon,
            };
        }
        questions.waiting.push_back(peer);
        *self = Self {
            asked: Some(asked),
            is_waiting: true,
            last_asked: Some(now),
        };
        Asking::Now
    }
}
