//! The inbound path: a datagram becomes a packet for the TUN.
//!
//! 1. The first four bytes and the length determine the message type.
//! 2. The receiver index of a data message finds its session, which must not be too old.
//! 3. Its counter must be new: neither in the replay window nor behind it.
//! 4. The message is decrypted straight into the sink's slot: the writer's batch.
//! 5. It updates the peer: endpoint (roaming), timers, confirmation of a new session.
//! 6. The packet takes over the outer ECN mark; its source must be among the peer's allowed IPs.
//!
//! Handshake messages go to `handshake.rs` instead.

use std::time::Duration;

use convoy_datagram::Datagram;

use crate::{
    counters::DropReason,
    messages::{
        COOKIE_REPLY, DATA_HEADER, DATA_OVERHEAD, INITIATION, RESPONSE, counter_of, index_at,
    },
    node::Node,
    packet,
    seams::{PacketSink, SinkFull},
    session::{REJECT_AFTER_MESSAGES, REJECT_AFTER_TIME},
    timers::{KEEPALIVE_TIMEOUT, REKEY_TIMEOUT},
};

/// Whether a datagram has the type and length of a handshake message or a cookie reply: each may cost
/// several Diffie-Hellman operations, any other datagram at most a decryption.
#[must_use]
pub fn is_handshake(datagram: &[u8]) -> bool {
    matches!(
        (datagram.first_chunk(), datagram.len()),
        (Some([1, 0, 0, 0]), INITIATION)
            | (Some([2, 0, 0, 0]), RESPONSE)
            | (Some([3, 0, 0, 0]), COOKIE_REPLY)
    )
}

impl Node {
    /// Handles one datagram.
    ///
    /// # Errors
    /// [`SinkFull`] if it carries data and `sink` has no slot. Nothing has changed: call again.
    pub fn handle_inbound(
        &mut self,
        datagram: Datagram<'_>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Result<(), SinkFull> {
        let bytes = datagram.bytes;
        let handled = match (bytes.first_chunk(), bytes.len()) {
            _ if !self.is_up => Err(DropReason::InboundLinkDown),
            _ if datagram.from.port() == 0 => Err(DropReason::InboundPortZero),
            (Some([4, 0, 0, 0]), DATA_OVERHEAD..) => self.handle_data(datagram, now, sink)?,
            _ if is_handshake(bytes) => self.handle_handshake(datagram, now),
            _ => Err(DropReason::InboundNotWireGuard),
        };
        if let Err(reason) = handled {
            self.counters.drops.add(reason, 1);
        }
        Ok(())
    }

    fn handle_data(
        &mut self,
        datagram: Datagram<'_>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Result<Result<(), DropReason>, SinkFull> {
        let receiver = index_at(datagram.bytes, 4);
        let Some(&id) = self.by_index.get(&receiver) else {
            return Ok(Err(DropReason::InboundUnknownSession));
        };
        let peer = &mut self.peers[id];
        let Some(session) = peer.sessions.find(receiver) else {
            return Ok(Err(DropReason::InboundUnknownSession));
        };
        let counter = counter_of(datagram.bytes);
        if !session.is_alive(now) || counter >= REJECT_AFTER_MESSAGES {
            return Ok(Err(DropReason::InboundExpiredSession));
        }
        if let Err(reason) = session.window.check(counter) {
            return Ok(Err(reason));
        }
        let ciphertext = &datagram.bytes[DATA_HEADER..];
        let slot = sink.slot(ciphertext.len()).ok_or(SinkFull)?;
        let opened = session.open(counter, ciphertext, slot);
        let len = match opened.and_then(|len| session.window.mark(counter).map(|()| len)) {
            Ok(len) => len,
            Err(reason) => return Ok(Err(reason)),
        };
        if peer.record_received(&datagram, self.routes, now) {
            self.source_questions.push_back(id);
        }
        let is_keepalive = len == 0;
        let admitted = match is_keepalive {
            true => Ok(None),
            false => self.admit(id, &mut slot[..len], datagram.ecn).map(Some),
        };
        if let Ok(Some(len)) = admitted {
            sink.commit(len);
            let peer = &mut self.peers[id];
            peer.rx_packets += 1;
            self.counters.inbound_packets += 1;
            self.counters.inbound_bytes += len as u64;
        }
        if !is_keepalive {
            self.peers[id].timers.data_received(now);
        }
        self.after_receiving(id, receiver, now);
        Ok(admitted.map(|_| ()))
    }

    /// Checks whether a decrypted packet may enter; returns its length without padding.
    fn admit(&self, id: usize, padded: &mut [u8], outer_ecn: u8) -> Result<usize, DropReason> {
        let len = packet::length(padded).ok_or(DropReason::InboundMalformed)?;
        let packet = &mut padded[..len];
        let source = packet::source(packet).ok_or(DropReason::InboundMalformed)?;
        if self.allowed_ips.lookup(source) != Some(id) {
            return Err(DropReason::InboundForeignSource);
        }
        if !packet::decapsulate_ecn(packet, outer_ecn) {
            return Err(DropReason::InboundEcn);
        }
        Ok(len)
    }

    /// Follows up an authenticated message of session `receiver`.
    fn after_receiving(&mut self, id: usize, receiver: u32, now: Duration) {
        let peer = &mut self.peers[id];
        self.deadlines.arm(id, &mut peer.timers);
        let confirmed = peer.sessions.confirm(receiver);
        // Paper §6.2: the initiator renews the session in time for the peer to go on sending.
        const LAST_MINUTE: Duration = Duration::from_secs(
            REJECT_AFTER_TIME.as_secs() - KEEPALIVE_TIMEOUT.as_secs() - REKEY_TIMEOUT.as_secs(),
        );
        let current = peer.sessions.current();
        let is_last_minute = current.is_some_and(|s| s.is_initiator && s.age(now) >= LAST_MINUTE);
        if let Some(ended) = confirmed {
            self.forget_indices(ended);
            self.session_begins(id, now);
        }
        if is_last_minute {
            self.initiate(id, now, false);
        }
    }
}
