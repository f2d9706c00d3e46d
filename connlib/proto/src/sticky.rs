//! Sticky sources: an answer leaves from the local address that the peer has spoken to, as long as
//! it then leaves by the interface that the peer was heard on.
//!
//! On a host with one address on each of two uplinks the route may lead out by the other uplink,
//! where nobody lets the address through; then the kernel is to choose. Only the caller can ask for
//! routes: [`Node::poll_source_question`].

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::node::Node;

/// The least time between two questions about one peer.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(100);

/// How a datagram has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The local address that it was sent to.
    pub address: IpAddr,
    /// The index of the interface that it came in by.
    pub interface: u32,
}

/// Does the route to `to`, with the source address `arrival.address`, lead out by
/// `arrival.interface`?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceQuestion {
    peer: usize,
    /// The peer's endpoint.
    pub to: SocketAddr,
    /// Where it was heard.
    pub arrival: Arrival,
}

/// What was asked, and when: an answer holds as long as nothing of this changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) to: SocketAddr,
    pub(crate) arrival: Arrival,
    pub(crate) routes: u32,
}

/// What the node knows of the way back to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WayBack {
    /// What was asked last; the answer is in the endpoint.
    pub(crate) asked: Option<Asked>,
    /// Whether the question waits to be polled.
    is_waiting: bool,
    last_asked: Option<Duration>,
}

impl WayBack {
    /// Another question arises. Returns whether it may be asked: a peer that is heard here and there
    /// by turns is answered from wherever the kernel chooses.
    pub(crate) fn ask(&mut self, asked: Asked, now: Duration) -> bool {
        let is_too_often = |at: Duration| now.saturating_sub(at) < BETWEEN_QUESTIONS;
        if self.is_waiting || self.last_asked.is_some_and(is_too_often) {
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

impl Node {
    /// The next question about a route; answer it before [`Node::poll_control`].
    pub fn poll_source_question(&mut self) -> Option<SourceQuestion> {
        while let Some(id) = self.source_questions.pop_front() {
            let Some(way) = self.peers.get_mut(id).map(|peer| &mut peer.way_back) else {
                continue;
            };
            way.is_waiting = false;
            if let Some(Asked { to, arrival, .. }) = way.asked {
                return Some(SourceQuestion {
                    peer: id,
                    to,
                    arrival,
                });
            }
        }
        None
    }

    /// Answers a question; without an answer the source address stays.
    pub fn answer_source_question(&mut self, question: &SourceQuestion, is_same_way: bool) {
        if is_same_way {
            return;
        }
        let SourceQuestion { peer, to, arrival } = *question;
        let source = Some(arrival.address);
        if let Some(endpoint) = self.peers.get_mut(peer).and_then(|p| p.endpoint.as_mut())
            && endpoint.address == to
            && endpoint.local == source
        {
            endpoint.local = None;
        }
        for control in &mut self.control {
            let transmit = &mut control.transmit;
            if transmit.to == to && transmit.from == source {
                transmit.from = None;
            }
        }
    }

    /// Routes have changed: sources are looked at again when they are next used.
    pub fn handle_routes_changed(&mut self) {
        self.routes = self.routes.wrapping_add(1);
    }

    /// Asks about the peer's source address again if routes have changed.
    pub(crate) fn check_source(&mut self, id: usize, now: Duration) {
        let peer = &mut self.peers[id];
        if let Some(asked) = peer.way_back.asked
            && asked.routes != self.routes
        {
            let routes = self.routes;
            if peer.way_back.ask(Asked { routes, ..asked }, now) {
                self.source_questions.push_back(id);
            } else {
                peer.forget_source();
            }
        }
    }
}
