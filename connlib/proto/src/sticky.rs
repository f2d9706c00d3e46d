//! Sticky sources: an answer leaves from the local address that the peer has spoken to, as long as
//! it then leaves by the interface that the peer was heard on.
//!
//! On a host with one address on each of two uplinks the route may lead out by the other uplink,
//! where nobody lets the address through; then the kernel is to choose. Only the caller can ask for
//! routes: [`Node::poll_source_question`].

use std::net::{IpAddr, SocketAddr};

use crate::node::Node;

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

impl Node {
    /// The next question about a route; answer it before [`Node::poll_control`].
    pub fn poll_source_question(&mut self) -> Option<SourceQuestion> {
        while let Some(id) = self.source_questions.pop_front() {
            let peer = self.peers.get(id);
            if let Some(Asked { to, arrival, .. }) = peer.and_then(|peer| peer.asked) {
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
    pub(crate) fn check_source(&mut self, id: usize) {
        if let Some(asked) = &mut self.peers[id].asked
            && asked.routes != self.routes
        {
            asked.routes = self.routes;
            self.source_questions.push_back(id);
        }
    }
}
