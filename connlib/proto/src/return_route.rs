//! The route back to a peer: the state behind its sticky source address.

use std::{net::SocketAddr, time::Duration};

use convoy_datagram::Arrival;

/// The least time between two questions about one peer.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(100);

/// A question about a route; its answer holds as long as none of these fields changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) to: SocketAddr,
    pub(crate) arrival: Arrival,
    /// The number of route changes so far.
    pub(crate) routes: u32,
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
    /// Records a new question; returns whether it may be asked now.
    ///
    /// A peer that keeps moving raises questions too often; then the kernel chooses the source.
    pub(crate) fn ask(&mut self, asked: Asked, now: Duration) -> bool {
        let is_too_soon = |at: Duration| now.saturating_sub(at) < BETWEEN_QUESTIONS;
        if self.is_waiting || self.last_asked.is_some_and(is_too_soon) {
            self.asked = None;
            return false;
        }
        *self = Self {
            asked: Some(asked),
            is_waiting: true,
            last_asked: Some(now),
        };
        true
    }
}
