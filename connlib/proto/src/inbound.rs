//! The way in: a datagram becomes a packet for the TUN.
//!
//! 1. The first four bytes and the length tell the message type.
//! 2. A data message: its receiver index finds the session, which must not be too old.
//! 3. It is opened straight into the sink's slot: the writer's batch.
//! 4. The peer has spoken: endpoint (roaming), timers, confirmation of a new session.
//! 5. ECN is carried inwards; the inner source must be among the peer's allowed IPs.
//!
//! Handshake messages take the other branch, `handle_handshake`.

use std::{net::SocketAddr, time::Duration};

use crate::{
    Full,
    counters::DropReason,
    node::Node,
    noise::{CONTROL_BYTES, DATA_OVERHEAD, Handshaken, Opened, Screened, index_at},
    packet,
    peer::Endpoint,
    sessions::{REJECT_AFTER_MESSAGES, REJECT_AFTER_TIME},
    sticky::Arrival,
    timers::{KEEPALIVE_TIMEOUT, REKEY_TIMEOUT},
};

/// Bytes of a data message in front of the ciphertext.
const DATA_HEADER: usize = 16;

/// Where packets go: the TUN writer's batch.
pub trait PacketSink {
    /// At least `len` bytes to decrypt into; `None` if the batch is full.
    fn slot(&mut self, len: usize) -> Option<&mut [u8]>;

    /// The first `len` bytes of the slot are a packet for the TUN.
    ///
    /// A slot that is not committed is given up.
    fn commit(&mut self, len: usize);
}

/// A datagram as it came from the socket.
#[derive(Clone, Copy, Debug)]
pub struct Inbound<'a> {
    /// The UDP payload.
    pub datagram: &'a [u8],
    /// Who sent it.
    pub from: SocketAddr,
    /// How it arrived, as far as that is known.
    pub arrival: Option<Arrival>,
    /// The two ECN bits of the outer header.
    pub ecn: u8,
}

/// Whether a datagram is, by its type and length, a handshake message or a cookie reply: each may
/// cost several Diffie-Hellmans, anything else at most a decryption.
#[must_use]
pub fn is_handshake(datagram: &[u8]) -> bool {
    matches!(
        (datagram.first_chunk(), datagram.len()),
        (Some([1, 0, 0, 0]), 148) | (Some([2, 0, 0, 0]), 92) | (Some([3, 0, 0, 0]), 64)
    )
}

impl Node {
    /// Handles one datagram.
    ///
    /// # Errors
    /// [`Full`] if it carries data and `sink` has no slot: nothing has happened, call again.
    pub fn handle_inbound(
        &mut self,
        inbound: Inbound<'_>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Result<(), Full> {
        let datagram = inbound.datagram;
        let dropped = match (datagram.first_chunk(), datagram.len()) {
            _ if !self.is_up => Err(DropReason::InboundLinkDown),
            _ if inbound.from.port() == 0 => Err(DropReason::InboundPortZero),
            (Some([4, 0, 0, 0]), DATA_OVERHEAD..) => self.handle_data(inbound, now, sink)?,
            _ if is_handshake(datagram) => self.handle_handshake(inbound, now),
            _ => Err(DropReason::InboundNotWireGuard),
        };
        if let Err(reason) = dropped {
            self.counters.drops.add(reason, 1);
        }
        Ok(())
    }

    fn handle_data(
        &mut self,
        inbound: Inbound<'_>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Result<Result<(), DropReason>, Full> {
        let receiver = index_at(inbound.datagram, 4);
        let Some(&id) = self.by_index.get(&(receiver >> 8)) else {
            return Ok(Err(DropReason::InboundUnknownSession));
        };
        let peer = &mut self.peers[id];
        let Some(keys) = peer.keys_of(receiver) else {
            return Ok(Err(DropReason::InboundUnknownSession));
        };
        let Some(session) = keys.sessions.find(receiver) else {
            return Ok(Err(DropReason::InboundUnknownSession));
        };
        let counter = u64_at(inbound.datagram, 8);
        if !session.is_alive(now) || counter >= REJECT_AFTER_MESSAGES {
            return Ok(Err(DropReason::InboundExpiredSession));
        }
        let ciphertext = inbound.datagram.len() - DATA_HEADER;
        let slot = sink.slot(ciphertext).ok_or(Full)?;
        let opened = match keys.noise.open(inbound.datagram, slot) {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason)),
        };
        if peer.heard(&inbound, self.routes, now) {
            self.source_questions.push_back(id);
        }
        let delivered = match opened {
            Opened::Keepalive => Ok(None),
            Opened::Malformed => Err(DropReason::InboundMalformed),
            Opened::Packet(len) => self.admit(id, &mut slot[..len], inbound.ecn).map(Some),
        };
        if let Ok(Some(len)) = delivered {
            sink.commit(len);
            let peer = &mut self.peers[id];
            peer.rx_packets += 1;
            self.counters.inbound_packets += 1;
            self.counters.inbound_bytes += len as u64;
        }
        if !matches!(opened, Opened::Keepalive) {
            self.peers[id].timers.data_received(now);
        }
        self.after_receiving(id, receiver, now);
        Ok(delivered.map(|_| ()))
    }

    /// Whether a decrypted packet may enter; returns its length.
    fn admit(&self, id: usize, packet: &mut [u8], outer_ecn: u8) -> Result<usize, DropReason> {
        let source = packet::source(packet).ok_or(DropReason::InboundMalformed)?;
        if self.allowed_ips.lookup(source) != Some(id) {
            return Err(DropReason::InboundForeignSource);
        }
        if !packet::decapsulate_ecn(packet, outer_ecn) {
            return Err(DropReason::InboundEcn);
        }
        Ok(packet.len())
    }

    /// A message of session `receiver` has authenticated.
    fn after_receiving(&mut self, id: usize, receiver: u32, now: Duration) {
        let peer = &mut self.peers[id];
        self.deadlines.arm(id, &mut peer.timers);
        let Some(keys) = peer.keys_of(receiver) else {
            return;
        };
        let is_new = keys.sessions.confirm(receiver);
        // Paper §6.2: the initiator renews in time for the other side to go on sending.
        const LAST_MINUTE: Duration = Duration::from_secs(
            REJECT_AFTER_TIME.as_secs() - KEEPALIVE_TIMEOUT.as_secs() - REKEY_TIMEOUT.as_secs(),
        );
        let is_last_minute = keys
            .sessions
            .current()
            .is_some_and(|s| s.initiator && now.saturating_sub(s.established) >= LAST_MINUTE);
        if is_new {
            self.session_begins(id, receiver, now);
        }
        if is_last_minute {
            self.initiate(id, now, false);
        }
    }

    /// Both sides have session `local`, and this one sends with it from now on.
    fn session_begins(&mut self, id: usize, local: u32, now: Duration) {
        self.counters.handshakes += 1;
        let peer = &mut self.peers[id];
        peer.timers.handshake_complete();
        peer.last_handshake = Some(now);
        if let Some(keys) = &mut peer.keys {
            keys.noise.stop_awaiting();
        }
        let is_present = peer
            .keys
            .as_ref()
            .is_some_and(|k| k.noise.index() == local >> 8);
        if is_present {
            let retired = peer.retire_former();
            self.forget_keys(id, retired);
        }
        self.release_held(id);
    }

    fn handle_handshake(&mut self, inbound: Inbound<'_>, now: Duration) -> Result<(), DropReason> {
        let identity = self.identity.as_ref().ok_or(DropReason::InboundNoKey)?;
        let from = inbound.from.ip();
        let screened = identity.screen(from, inbound.datagram, &mut self.sources, now)?;
        let id = match screened {
            Screened::Initiation(key) => *self
                .by_key
                .get(&key)
                .ok_or(DropReason::InboundUnknownPeer)?,
            Screened::Reply { receiver } => *self
                .by_index
                .get(&(receiver >> 8))
                .ok_or(DropReason::InboundUnknownSession)?,
            Screened::AskForCookie(reply) => {
                self.push_cookie(endpoint(inbound), &reply);
                return Err(DropReason::InboundUnderLoad);
            }
        };
        let is_initiation = inbound.datagram[0] == 1;
        let peer = &mut self.peers[id];
        if is_initiation {
            if peer.is_answered_just_now(now) {
                return Err(DropReason::InboundTooSoon);
            }
            peer.show_to_former(inbound.datagram)?;
        }
        let mut buffer = [0; CONTROL_BYTES];
        let keys = peer.keys.as_mut().ok_or(DropReason::InboundNoKey)?;
        let mut begun = [0; CONTROL_BYTES];
        let is_begun = is_initiation && keys.prepare_to_answer(&mut begun);
        let handshaken = match keys.noise.handshake(inbound.datagram, &mut buffer) {
            Ok(handshaken) => handshaken,
            Err(reason) => {
                if is_begun {
                    self.initiate_with(id, &begun, now);
                }
                return Err(reason);
            }
        };
        let (reply, local, is_complete) = match handshaken {
            // A cookie proves nothing about who sent it: no roaming, no timers.
            Handshaken::Cookie => return Ok(()),
            Handshaken::Respond { response, local } => {
                keys.sessions.offer(local, now);
                peer.last_answer = Some(now);
                (response, local, false)
            }
            Handshaken::Complete { keepalive, local } => {
                keys.sessions.complete(local, now);
                // A held packet confirms the session to the peer as well.
                let confirmation = if peer.held.is_empty() { keepalive } else { &[] };
                (confirmation, local, true)
            }
        };
        tracing::debug!(peer = %peer.public_key, from = %inbound.from, session = local, "Handshake message received");
        if peer.heard(&inbound, self.routes, now) {
            self.source_questions.push_back(id);
        }
        peer.timers.session_derived(now);
        if !reply.is_empty() {
            peer.tx_bytes += reply.len() as u64;
            if is_complete {
                peer.timers.authenticated_sent(now);
            } else {
                peer.timers.response_sent(now);
            }
            let len = reply.len();
            let endpoint = peer.endpoint.unwrap_or(endpoint(inbound));
            self.push_control(endpoint, &buffer[..len]);
        }
        if is_complete {
            self.session_begins(id, local, now);
        }
        self.deadlines.arm(id, &mut self.peers[id].timers);
        Ok(())
    }
}

/// The little-endian counter at `offset` of a data message.
fn u64_at(message: &[u8], offset: usize) -> u64 {
    let bytes = message.get(offset..).and_then(<[u8]>::first_chunk);
    bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

fn endpoint(inbound: Inbound<'_>) -> Endpoint {
    Endpoint {
        address: inbound.from,
        local: inbound.arrival.map(|arrival| arrival.address),
    }
}
