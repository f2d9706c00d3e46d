//! The outbound path: a packet from the TUN becomes a datagram.
//!
//! 1. The destination address selects the peer (allowed IPs).
//! 2. Without a session, the packet is held and a handshake begins.
//! 3. The packet is padded, takes a counter, and is encrypted into the caller's stack buffer.
//! 4. The datagram is appended to the sink: the GSO queue.
//! 5. The peer's timers are updated; if the session is old, a new handshake begins.

use std::time::Duration;

use crate::{
    counters::DropReason,
    held, icmp,
    messages::DATA_OVERHEAD,
    node::Node,
    packet,
    seams::{DatagramSink, PaddablePacket},
    timers::jitter,
};

/// Size of the stack buffer that ordinary packets are encrypted into, in bytes.
pub const STACK_BUFFER_BYTES: usize = 2048;

/// Plaintext is padded to a multiple of this many bytes (WireGuard paper, §5.4.6).
const PADDING_MULTIPLE: usize = 16;

impl Node {
    /// Handles one packet from the TUN; call only while `sink` has room.
    ///
    /// `buffer` is scratch: the caller's stack buffer.
    pub fn handle_outbound(
        &mut self,
        packet: &mut impl PaddablePacket,
        now: Duration,
        buffer: &mut [u8; STACK_BUFFER_BYTES],
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
        let peer = &mut self.peers[id];
        if peer.endpoint.is_none() {
            return self.refuse(packet.bytes(), DropReason::OutboundNoEndpoint, now);
        }
        let longest = peer.max_datagram(now) - DATA_OVERHEAD;
        if packet.bytes().len() > longest {
            self.counters.drops.add(DropReason::OutboundTooBig, 1);
            let reply = || icmp::too_big(packet.bytes(), longest as u16);
            return self.replies.push(now, reply);
        }
        // A packet must not overtake those that are held.
        if peer.held.is_empty() {
            self.send(id, packet, longest, now, buffer, sink);
        } else {
            self.hold(id, packet.bytes(), now);
        }
    }

    /// Drops a packet whose destination is unreachable, and answers its sender by ICMP.
    fn refuse(&mut self, packet: &[u8], reason: DropReason, now: Duration) {
        self.counters.drops.add(reason, 1);
        self.replies.push(now, || icmp::unreachable(packet));
    }

    /// Sends held packets to peers that have a session now, while `sink` has room.
    pub fn drain_held(
        &mut self,
        now: Duration,
        buffer: &mut [u8; STACK_BUFFER_BYTES],
        sink: &mut impl DatagramSink,
    ) {
        while let Some(&id) = self.ready.front() {
            while self.peers[id].can_send(now) {
                if !sink.has_room() {
                    return;
                }
                let Some(mut packet) = self.peers[id].held.pop_front() else {
                    break;
                };
                self.held_bytes -= packet.cost();
                let longest = self.peers[id].max_datagram(now) - DATA_OVERHEAD;
                self.send(id, &mut packet, longest, now, buffer, sink);
            }
            self.ready.pop_front();
        }
    }

    fn hold(&mut self, id: usize, packet: &[u8], now: Duration) {
        let peer = &mut self.peers[id];
        let dropped = held::hold(&mut peer.held, &mut self.held_bytes, packet);
        self.counters
            .drops
            .add(DropReason::OutboundHeldOverflow, dropped);
        if peer.can_send(now) {
            self.release_held(id);
        } else {
            self.initiate(id, now, false);
        }
    }

    /// `longest`: the bound of the packet and its padding, in bytes.
    fn send(
        &mut self,
        id: usize,
        packet: &mut impl PaddablePacket,
        longest: usize,
        now: Duration,
        buffer: &mut [u8; STACK_BUFFER_BYTES],
        sink: &mut impl DatagramSink,
    ) {
        let peer = &mut self.peers[id];
        let Some(endpoint) = peer.endpoint else {
            return self.counters.drops.add(DropReason::OutboundNoEndpoint, 1);
        };
        let Some(session) = peer.sessions.sending(now) else {
            return self.hold(id, packet.bytes(), now);
        };
        let len = packet.bytes().len();
        let destination = endpoint.destination(packet::ecn(packet.bytes()));
        let padded = packet.padded(padded_len(len, longest.min(self.mtu.into())));
        let buffer = sealing_buffer(buffer, &mut self.jumbo, padded.len());
        let counter = session.reserve();
        let Some(datagram) = session.seal(counter, padded, buffer) else {
            return self.counters.drops.add(DropReason::OutboundTooBig, 1);
        };
        let is_old = session.wants_rekey(now);
        if sink.append(&destination, datagram).is_err() {
            return self.counters.drops.add(DropReason::OutboundQueueFull, 1);
        }
        peer.tx_bytes += datagram.len() as u64;
        peer.tx_packets += 1;
        self.counters.outbound_bytes += len as u64;
        self.counters.outbound_packets += 1;
        peer.timers.data_sent(now, jitter);
        self.deadlines.arm(id, &mut peer.timers);
        self.check_source(id, now);
        if is_old {
            self.initiate(id, now, false);
        }
    }
}

/// The stack buffer; for jumbo packets a buffer that is kept for reuse.
fn sealing_buffer<'a>(
    stack: &'a mut [u8; STACK_BUFFER_BYTES],
    jumbo: &'a mut Vec<u8>,
    padded: usize,
) -> &'a mut [u8] {
    let needed = padded + DATA_OVERHEAD;
    if needed <= STACK_BUFFER_BYTES {
        return stack;
    }
    if jumbo.len() < needed {
        jumbo.resize(needed, 0);
    }
    jumbo
}

/// The length of a packet with its padding: a multiple of 16, but at most the MTU.
fn padded_len(len: usize, mtu: usize) -> usize {
    len.next_multiple_of(PADDING_MULTIPLE).min(mtu.max(len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        common::Pair,
        session::{REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES},
    };

    #[test]
    fn either_side_renews_the_session_after_rekey_after_messages() {
        for is_initiator in [true, false] {
            let mut pair = Pair::connected();
            let sender = if is_initiator {
                &mut pair.a
            } else {
                &mut pair.b
            };
            set_sent(&mut sender.node, REKEY_AFTER_MESSAGES - 2);
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
        set_sent(&mut pair.a.node, REJECT_AFTER_MESSAGES);
        pair.now += crate::timers::REKEY_TIMEOUT;
        pair.a_sends(b"in a new session only");
        let sent = pair.a.take_wire(pair.now);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [148]);
    }

    fn set_sent(node: &mut Node, sent: u64) {
        let session = node.peers[0].sessions.current_mut();
        session.expect("a session").set_sent(sent);
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
