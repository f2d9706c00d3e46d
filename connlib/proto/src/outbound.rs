//! The outbound path: a packet from the TUN becomes a datagram.
//!
//! 1. The destination address selects the peer (allowed IPs).
//! 2. Without a session, the packet is held and a handshake begins.
//! 3. The packet is padded, takes a counter, and is copied to a slot of the caller's stack buffer. There the
//!    MSS of a TCP handshake may be lowered.
//! 4. Up to 16 packets are sealed together, each in its slot, and appended to the sink (the GSO queue).
//! 5. The peer's timers are updated; if the session is old, a new handshake begins.

use std::time::Duration;

use convoy_turn::HEADER_LEN;

use crate::{
    counters::DropReason,
    icmp,
    messages::{DATA_HEADER, DATA_OVERHEAD, index_at},
    node::Node,
    packet,
    seams::{DatagramSink, PacketSource, PaddablePacket, SinkFull},
    staging::{HEADROOM, Outgoing, Staging},
    timers::jitter,
};

/// Plaintext is padded to a multiple of this many bytes (WireGuard paper, §5.4.6).
const PADDING_MULTIPLE: usize = 16;

impl Node {
    /// Handles packets from the TUN, while `sink` has room for their datagrams.
    pub fn handle_outbound(
        &mut self,
        packets: &mut impl PacketSource,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) {
        self.handle_outbound_except(packets, now, staging, sink, |_| false);
    }

    /// As [`Node::handle_outbound`], without packets that `is_left_out`, which the caller counts.
    pub fn handle_outbound_except(
        &mut self,
        packets: &mut impl PacketSource,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
        mut is_left_out: impl FnMut(&[u8]) -> bool,
    ) {
        while self.makes_room(staging, sink)
            && let Some(mut packet) = packets.next()
        {
            if !is_left_out(packet.bytes()) {
                self.handle_packet(&mut packet, now, staging, sink);
            }
        }
        self.seal_staged(staging, sink);
    }

    /// Makes room for another packet by sealing the staged ones if need be; returns whether there is room.
    fn makes_room(&mut self, staging: &mut Staging, sink: &mut impl DatagramSink) -> bool {
        if staging.has_room(sink) {
            return true;
        }
        self.seal_staged(staging, sink);
        staging.has_room(sink)
    }

    fn handle_packet(
        &mut self,
        packet: &mut impl PaddablePacket,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) {
        if !self.is_up {
            return self.counters.drops.add(DropReason::OutboundLinkDown, 1);
        }
        let Some(destination) = packet::destination(packet.bytes()) else {
            return self.counters.drops.add(DropReason::OutboundMalformed, 1);
        };
        let Some(id) = self.allowed_ips.lookup(destination) else {
            return self.refuse(packet.bytes(), DropReason::OutboundNoRoute, now);
        };
        let found = match self.peers[id].endpoint {
            Some(endpoint) => Some((id, endpoint)),
            None => self.by_hub(id, now),
        };
        let Some((id, endpoint)) = found else {
            return self.refuse(packet.bytes(), DropReason::OutboundNoEndpoint, now);
        };
        if endpoint.address.ip() == destination && self.is_datagram_to(id, packet.bytes()) {
            return self.counters.drops.add(DropReason::OutboundLoop, 1);
        }
        let peer = &mut self.peers[id];
        let longest = peer.max_datagram(now) - DATA_OVERHEAD;
        if packet.bytes().len() > longest {
            self.counters.drops.add(DropReason::OutboundTooBig, 1);
            let reply = || icmp::too_big(packet.bytes(), longest as u16);
            return self.replies.push(now, reply);
        }
        // A packet must not overtake the held ones.
        if self.held.is_empty(id) {
            self.send(id, packet, longest, now, staging, sink);
        } else {
            self.seal_staged(staging, sink);
            self.hold(id, packet.bytes(), now);
        }
    }

    /// Returns whether a packet is a datagram that this node has sent to the peer. Sealed once more, it would come back
    /// for ever, and the peer would take the tunnel for the way to this end. An index tells it from datagrams of
    /// others.
    fn is_datagram_to(&self, id: usize, packet: &[u8]) -> bool {
        let Some(message) = packet::udp_payload(packet) else {
            return false;
        };
        let index = index_at(message, 4);
        // The types of initiations, responses and data messages (WireGuard paper, section 5.4).
        match message.get(..4) {
            Some([1 | 2, 0, 0, 0]) => self.by_index.contains_key(&index),
            Some([4, 0, 0, 0]) => self.peers[id].sessions.have_remote(index),
            _ => false,
        }
    }

    /// Returns whether a packet is a datagram that this node has sent to any of its peers.
    #[must_use]
    pub fn is_own_datagram(&self, packet: &[u8]) -> bool {
        let Some(to) = packet::destination(packet) else {
            return false;
        };
        let mut peers = self.by_address.peers_of(to);
        peers.any(|id| self.is_datagram_to(id, packet))
    }

    /// Drops a packet whose destination is unreachable, and answers its sender with an ICMP error.
    fn refuse(&mut self, packet: &[u8], reason: DropReason, now: Duration) {
        self.counters.drops.add(reason, 1);
        self.replies.push(now, || icmp::unreachable(packet));
    }

    /// Sends the held packets of peers that now have a session, while `sink` has room.
    pub fn drain_held(
        &mut self,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) {
        self.stage_held(now, staging, sink);
        self.seal_staged(staging, sink);
    }

    fn stage_held(&mut self, now: Duration, staging: &mut Staging, sink: &mut impl DatagramSink) {
        while let Some(&id) = self.ready.front() {
            while self.peers.get(id).is_some_and(|peer| peer.can_send(now)) {
                if !self.makes_room(staging, sink) {
                    return;
                }
                let Some(mut packet) = self.held.pop(id) else {
                    break;
                };
                let longest = self.peers[id].max_datagram(now) - DATA_OVERHEAD;
                self.send(id, &mut packet, longest, now, staging, sink);
            }
            self.ready.pop_front();
            if let Some(peer) = self.peers.get_mut(id) {
                peer.is_ready = false;
            }
        }
    }

    pub(crate) fn hold(&mut self, id: usize, packet: &[u8], now: Duration) {
        let dropped = self.held.hold(id, packet);
        let drops = &mut self.counters.drops;
        drops.add(DropReason::OutboundHeldOverflow, dropped);
        if self.peers[id].can_send(now) {
            self.release_held(id);
        } else {
            self.initiate(id, now, false);
        }
    }

    /// Stages or seals a packet, or holds it if there is no session. `longest` bounds the packet with its
    /// padding, in bytes.
    fn send(
        &mut self,
        id: usize,
        packet: &mut impl PaddablePacket,
        longest: usize,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) {
        let peer = &mut self.peers[id];
        let Some(endpoint) = peer.endpoint else {
            return self.counters.drops.add(DropReason::OutboundNoEndpoint, 1);
        };
        let Some(session) = peer.sessions.sending(now) else {
            self.seal_staged(staging, sink);
            return self.hold(id, packet.bytes(), now);
        };
        let packet_len = packet.bytes().len();
        let mut destination = endpoint.destination(packet::ecn(packet.bytes()));
        let padded = packet.padded(padded_len(packet_len, longest.min(self.mtu.into())));
        let mut wrapping = None;
        if let Some(relayed) = &peer.relayed {
            wrapping = relayed.wrap(padded.len() + DATA_OVERHEAD, &mut destination);
            if wrapping.is_none() {
                let drops = &mut self.counters.drops;
                return drops.add(DropReason::OutboundRelayNotReady, 1);
            }
        }
        let outgoing = Outgoing {
            peer: id,
            destination,
            packet_len,
            padded,
            relayed: wrapping,
        };
        if Staging::fits(padded.len()) {
            staging.stage(&outgoing, session, self.mss_clamp);
        } else {
            self.seal_staged(staging, sink);
            self.seal_alone(&outgoing, now, sink);
        }
        if wrapping.is_some() {
            self.note_relayed(id, now);
        }
        let peer = &mut self.peers[id];
        let is_old = peer.sessions.current().is_some_and(|s| s.wants_rekey(now));
        peer.timers.data_sent(now, jitter);
        self.deadlines.arm(id, &mut peer.timers);
        self.check_source(id, now);
        if is_old {
            self.initiate(id, now, false);
        }
    }

    /// Seals a jumbo packet in a reused buffer and appends it to `sink`.
    fn seal_alone(&mut self, outgoing: &Outgoing<'_>, now: Duration, sink: &mut impl DatagramSink) {
        let Outgoing { peer, padded, .. } = *outgoing;
        let Some(session) = self.peers[peer].sessions.sending(now) else {
            return;
        };
        let needed = padded.len() + DATA_OVERHEAD;
        if self.jumbo.len() < HEADROOM + needed {
            self.jumbo.resize(HEADROOM + needed, 0);
        }
        let (headroom, jumbo) = self.jumbo.split_at_mut(HEADROOM);
        let counter = session.reserve();
        let sealed = if self.mss_clamp.concerns(padded) {
            let text = &mut jumbo[DATA_HEADER..][..padded.len()];
            text.copy_from_slice(padded);
            self.mss_clamp.apply(text);
            session.seal_in_place(&self.aead, counter, &mut jumbo[..needed])
        } else {
            session.seal(&self.aead, counter, padded, jumbo)
        };
        let is_sealed = sealed.is_some();
        let mut first = HEADROOM;
        if let Some(wrapping) = outgoing.relayed {
            first -= HEADER_LEN;
            headroom[first..].copy_from_slice(&wrapping.header);
        }
        let datagram = &self.jumbo[first..HEADROOM + needed];
        let appended = match outgoing.relayed.and_then(|wrapping| wrapping.stream) {
            _ if !is_sealed => Err(SinkFull),
            None => sink.append(&outgoing.destination, datagram),
            Some(relay) => sink.append_frame(relay, datagram),
        };
        match appended {
            Ok(()) => self.count_sent(peer, outgoing.packet_len, needed),
            Err(SinkFull) => self.counters.drops.add(DropReason::OutboundQueueFull, 1),
        }
    }
}

/// The length of a packet with its padding: a multiple of 16, or the MTU if that is less. A packet longer
/// than the MTU gets none.
pub(crate) fn padded_len(len: usize, mtu: usize) -> usize {
    len.next_multiple_of(PADDING_MULTIPLE).min(mtu.max(len))
}

#[cfg(test)]
mod tests {
    use convoy_noise::{REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES};

    use super::*;
    use crate::common::Pair;

    #[test]
    fn either_side_renews_the_session_after_rekey_after_messages() {
        for is_initiator in [true, false] {
            let mut pair = Pair::connected();
            let sender = if is_initiator {
                &mut pair.a
            } else {
                &mut pair.b
            };
            skip_to(&mut sender.node, REKEY_AFTER_MESSAGES - 2);
            let handshakes = |pair: &mut Pair| pair.a.node.counters().handshakes;
            for expected in [1, 2] {
                match is_initiator {
                    true => pair.a_sends(b"one more"),
                    false => pair.b_sends(b"one more"),
                }
                pair.now += crate::timers::REKEY_TIMEOUT;
                pair.settle();
                assert_eq!(handshakes(&mut pair), expected);
            }
            assert_eq!(pair.a.delivered.len() + pair.b.delivered.len(), 2);
        }
    }

    #[test]
    fn a_session_sends_nothing_after_reject_after_messages() {
        let mut pair = Pair::connected();
        skip_to(&mut pair.a.node, REJECT_AFTER_MESSAGES);
        pair.now += crate::timers::REKEY_TIMEOUT;
        pair.a_sends(b"in a new session only");
        let sent = pair.a.take_wire(pair.now);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [148]);
    }

    fn skip_to(node: &mut Node, counter: u64) {
        let session = node.peers[0].sessions.current_mut();
        session.expect("a session").skip_to(counter);
    }

    #[test]
    fn padding_reaches_a_multiple_of_sixteen_but_not_beyond_the_mtu() {
        assert_eq!(padded_len(84, 1420), 96);
        assert_eq!(padded_len(96, 1420), 96);
        assert_eq!(padded_len(1411, 1420), 1420);
        assert_eq!(padded_len(1420, 1420), 1420);
        assert_eq!(
            padded_len(1500, 1420),
            1500,
            "a packet longer than the MTU is not padded"
        );
    }
}
