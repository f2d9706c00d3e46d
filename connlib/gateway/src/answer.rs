//! Answers where there is no flow: RST, and ICMP errors.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use super::{budget::Budget, ends::Ends, inlet::Inside};
use convoy_network::peers::Peers;
use convoy_packet::{
    counters::{Counters, Dropped},
    icmp::{Unreachable, write_unreachable},
    packet::{IPV6_HEADER, Packet, is_unicast, write_ip_header},
    segment::{ACK, Plain, RST, Segment, Tuple, write_segment},
    vnet::VnetHeader,
};

/// Longest error, with its header.
const LONGEST: usize = 1_280;

/// Sends packets inside.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) inside: Box<dyn Inside>,
    peers: Arc<Peers>,
    own: Vec<IpAddr>,
    errors: Mutex<Budget>,
}

impl Answers {
    /// Answers to `count` peers, from a gateway with the addresses `own`.
    pub(super) fn new(
        inside: Box<dyn Inside>,
        (peers, count): (Arc<Peers>, u32),
        own: Vec<IpAddr>,
    ) -> Self {
        Self {
            inside,
            peers,
            own,
            errors: Mutex::new(Budget::new(count, Instant::now())),
        }
    }

    /// Counters of what was sent, and discarded.
    pub(super) fn counters(&self) -> &Counters {
        self.inside.counters()
    }

    /// Accepts the connection that a SYN begins.
    pub(super) fn admit(&self, syn: &[u8]) {
        self.inside.admit(syn);
    }

    /// Resets the connection that a SYN would begin.
    pub(super) fn reset(&self, ends: Ends, syn: &Segment) {
        let ends = Tuple {
            local: ends.target,
            remote: ends.peer,
        };
        let reset = Plain {
            flags: RST | ACK,
            acknowledged: syn.end(),
            ..Plain::default()
        };
        self.error(ends.remote.ip(), |into| write_segment(into, ends, reset));
    }

    /// Says that it is forbidden to send a packet.
    pub(super) fn prohibit(&self, packet: &Packet<'_>) {
        self.unreachable(Unreachable::Prohibited, packet);
    }

    /// Says why a packet does not reach its destination.
    pub(super) fn unreachable(&self, why: Unreachable, packet: &Packet<'_>) {
        self.unreachable_from(None, why, packet);
    }

    fn unreachable_from(&self, from: Option<IpAddr>, why: Unreachable, packet: &Packet<'_>) {
        if !is_unicast(packet.source) || !is_unicast(packet.destination) {
            // RFC 1122, section 3.2.2; RFC 4443, section 2.4.
            return;
        }
        let is_usable = |it: &IpAddr| it.is_ipv4() == packet.source.is_ipv4();
        let from = from.filter(|it| is_usable(it) && is_unicast(*it));
        let own = || self.own.iter().copied().find(is_usable);
        let source = from.or_else(own).unwrap_or(packet.destination);
        let ends = (source, packet.source);
        self.error(packet.source, |into| {
            write_unreachable(into, why, ends, packet.bytes)
        });
    }

    /// Says why a packet of a flow does not reach its destination, of which the kernel has kept the header alone; in the
    /// place of a router or host outside if one has said so.
    pub(super) fn unreachable_flow(
        &self,
        (why, from): (Unreachable, Option<IpAddr>),
        (source, destination): (IpAddr, IpAddr),
        protocol: u8,
        header: [u8; 8],
    ) {
        let mut bytes = [0; IPV6_HEADER + 8];
        let at = write_ip_header(&mut bytes, source, destination, protocol, header.len());
        bytes[at..at + header.len()].copy_from_slice(&header);
        // It is as it was made.
        if let Ok(packet) = Packet::parse(VnetHeader::default(), &bytes[..at + header.len()]) {
            self.unreachable_from(from, why, &packet);
        }
    }

    /// Sends a packet, in fragments if it is longer than the MTU.
    pub(super) fn send(&self, packet: &mut [u8]) {
        self.inside.write(packet);
    }

    fn error(&self, to: IpAddr, write: impl FnOnce(&mut [u8]) -> usize) {
        let Some(peer) = self.peers.of(to) else {
            return self.counters().drop(Dropped::BadSource);
        };
        let mut budget = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if !budget.spend(peer, Instant::now()) {
            return self.counters().drop(Dropped::TooManyErrors);
        }
        drop(budget);
        let mut packet = [0; LONGEST];
        let length = write(&mut packet);
        self.inside.write(&mut packet[..length]);
    }
}
