//! Sticky sources: datagrams to a peer leave from the local address that the peer sends to, as long as they
//! leave by the interface on which the peer's datagrams arrive.
//!
//! On a host with two uplinks and an address on each, the route may lead out by the other uplink, whose
//! network drops packets from this address. Then the kernel must choose the source. Only the caller can
//! look up routes: [`Node::poll_source_question`]. Questions are limited; until one is answered, datagrams
//! leave from the address that the peer sends to.
//!
//! A new handshake leaves that address, as the network may have changed. Until shortly after its answer, what the peer
//! sent to the former address before it heard of the new one does not bring it back.

use std::{net::SocketAddr, time::Duration};

use convoy_types::Arrival;

use crate::{node::Node, return_route::Way};

/// Asks whether the route to `to`, from the source address `arrival.address`, leads out by `arrival.interface`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceQuestion {
    peer: usize,
    /// The peer's endpoint.
    pub to: SocketAddr,
    /// How the peer's last datagram arrived.
    pub arrival: Arrival,
    /// The number of route changes when it was raised.
    routes: u32,
}

impl Node {
    /// Returns the next question about a route. Answer it before [`Node::poll_control`], or waiting control datagrams
    /// leave with an unchecked source.
    pub fn poll_source_question(&mut self) -> Option<SourceQuestion> {
        while let Some(id) = self.questions.waiting.pop_front() {
            let Some(route) = self.peers.get_mut(id).map(|peer| &mut peer.return_route) else {
                continue;
            };
            if let Some(Way {
                to,
                arrival,
                routes,
            }) = route.take_question()
            {
                return Some(SourceQuestion {
                    peer: id,
                    to,
                    arrival,
                    routes,
                });
            }
        }
        None
    }

    /// Answers a question: if the interface differs, the kernel chooses the source. Without an answer the source
    /// address stays.
    pub fn answer_source_question(&mut self, question: &SourceQuestion, is_same_interface: bool) {
        let SourceQuestion {
            peer,
            to,
            arrival,
            routes,
        } = *question;
        let way = Way {
            to,
            arrival,
            routes,
        };
        if let Some(peer) = self.peers.get_mut(peer)
            && peer.return_route.answer(way, is_same_interface)
            && let Some(endpoint) = peer.endpoint.as_mut().filter(|e| e.address == to)
        {
            endpoint.source = is_same_interface.then_some(arrival.address);
        }
        if !is_same_interface {
            self.control.forget_source(to, arrival.address);
        }
    }

    /// Call when routes have changed: each source address is then checked again when it is next used.
    pub fn handle_routes_changed(&mut self) {
        self.questions.routes = self.questions.routes.wrapping_add(1);
    }

    /// Call when the source address of datagrams to `to` is gone: the kernel chooses until the peer sends again.
    pub fn forget_source(&mut self, to: SocketAddr) {
        for id in self.by_address.peers_at(to) {
            self.peers[id].forget_source();
        }
    }

    /// Unpins the source address of every peer, so that the kernel chooses it until the peer sends again.
    pub fn forget_sources(&mut self) {
        self.peers
            .iter_mut()
            .for_each(|(_, peer)| peer.forget_source());
    }

    /// Asks about the peer's source address if routes have changed since, or if the question was put off.
    pub(crate) fn check_source(&mut self, id: usize, now: Duration) {
        let route = &mut self.peers[id].return_route;
        route.ask_if_due(id, &mut self.questions, now);
    }
}
