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
    /// Records a new question about `peer`; returns whether it may be asked now.
    ///
    /// A peer that keeps moving may exceed its rate limit, or all peers together theirs. Then the kernel
    /// chooses the source.
    pub(crate) fn ask(
        &mut self,
        peer: usize,
        asked: Asked,
        questions: &mut RouteQuestions,
        now: Duration,
    ) -> bool {
        let is_too_soon = |at: Duration| now.saturating_sub(at) < BETWEEN_QUESTIONS;
        if self.is_waiting
            || self.last_asked.is_some_and(is_too_soon)
            || !questions.bucket.take(ALL_QUESTIONS, now)
        {
            self.asked = None;
            return false;
        }
        questions.waiting.push_back(peer);
        *self = Self {
            asked: Some(asked),
            is_waiting: true,
            last_asked: Some(now),
        };
        true
    }
}
