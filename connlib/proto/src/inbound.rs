//! The inbound path: a datagram becomes a packet for the TUN.
//!
//! 1. The first four bytes and the length determine the message type.
//! 2. The receiver index of a data message finds its session, which must not be too old.
//! 3. Its counter must be new, and the sink (the writer's batch) must have a slot for its packet.
//! 4. Up to 16 messages are decrypted together, each straight into its slot.
//! 5. In order of arrival, each authentic message marks its counter in the replay window and updates the
//!    peer: endpoint (roaming), timers, confirmation of a new session.
//! 6. The packet takes over the outer ECN mark; its source must be among the peer's allowed IPs. The MSS of a
//!    TCP handshake may be lowered.
//!
//! Handshake messages go to `handshake.rs` instead. What a TURN server relays is unwrapped first (`relaying/inbound.rs`).

use std::time::Duration;

use arrayvec::ArrayVec;
use convoy_aead::{Open, SLOTS};
use convoy_noise::{REJECT_AFTER_MESSAGES, REJECT_AFTER_TIME};
use convoy_types::Datagram;

use crate::{
    counters::DropReason,
    handshake::Way,
    messages::{
        COOKIE_REPLY, DATA_HEADER, DATA_OVERHEAD, INITIATION, RESPONSE, counter_of, index_at,
    },
    node::Node,
    packet::{self, Congestion},
    relays::RelayId,
    seams::{PacketSink, SinkFull},
    timers::{KEEPALIVE_TIMEOUT, REKEY_TIMEOUT},
};

/// Returns whether a datagram has the type and length of a handshake message or a cookie reply.
///
/// A handshake message may cost several Diffie-Hellman operations, any other datagram one decryption. One that a TURN
/// server has wrapped in ChannelData counts as well.
#[must_use]
pub fn is_handshake(datagram: &[u8]) -> bool {
    match datagram {
        [0x40..=0x4F, _, _, _, relayed @ ..] => is_plain_handshake(relayed),
        _ => is_plain_handshake(datagram),
    }
}

fn is_plain_handshake(datagram: &[u8]) -> bool {
    matches!(
        (datagram.first_chunk(), datagram.len()),
        (Some([1, 0, 0, 0]), INITIATION)
            | (Some([2, 0, 0, 0]), RESPONSE)
            | (Some([3, 0, 0, 0]), COOKIE_REPLY)
    )
}

/// The result of [`Node::handle_inbound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "datagrams that were not handled must be offered again"]
pub struct Handled {
    /// The number of datagrams handled, from the first on.
    pub datagrams: usize,
    /// Whether the next one is a data message for which the sink has no slot.
    pub is_sink_full: bool,
}

/// A data message with a reserved slot for its packet.
pub(crate) struct Incoming<'a> {
    datagram: Datagram<'a>,
    pub(crate) peer: usize,
    /// The local index of its session.
    pub(crate) session: u32,
    pub(crate) counter: u64,
    /// The TURN server that has relayed it.
    pub(crate) relay: Option<RelayId>,
}

/// Messages to be decrypted together.
pub(crate) type Batch<'a> = ArrayVec<Incoming<'a>, SLOTS>;

impl Node {
    /// Handles datagrams in order of arrival, while `sink` has room for their packets.
    pub fn handle_inbound<'a>(
        &mut self,
        datagrams: impl IntoIterator<Item = Datagram<'a>>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Handled {
        let mut batch = Batch::new();
        let mut handled = Handled {
            datagrams: 0,
            is_sink_full: false,
        };
        for datagram in datagrams {
            match self.take_in(datagram, now, &mut batch, sink) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => self.counters.drops.add(reason, 1),
                Err(SinkFull) => {
                    handled.is_sink_full = true;
                    break;
                }
            }
            handled.datagrams += 1;
            if batch.is_full() {
                self.open_batch(&mut batch, now, sink);
            }
        }
        self.open_batch(&mut batch, now, sink);
        handled
    }

    fn take_in<'a>(
        &mut self,
        datagram: Datagram<'a>,
        now: Duration,
        batch: &mut Batch<'a>,
        sink: &mut impl PacketSink,
    ) -> Result<Result<(), DropReason>, SinkFull> {
        let bytes = datagram.bytes;
        match (bytes.first_chunk(), bytes.len()) {
            _ if !self.is_up => Ok(Err(DropReason::InboundLinkDown)),
            _ if datagram.from.port() == 0 => Ok(Err(DropReason::InboundPortZero)),
            // A server that unwraps what it relays would be taken for the peer's address.
            (Some([1..=4, 0, 0, 0]), _) if self.relay_at(datagram.from).is_some() => {
                Ok(Err(DropReason::InboundRelayStranger))
            }
            (Some([4, 0, 0, 0]), DATA_OVERHEAD..) => match self.find_session(datagram, now) {
                Ok(incoming) => {
                    let packet = bytes.len() - DATA_OVERHEAD;
                    let is_reserved = sink.reserve(packet);
                    is_reserved.then(|| batch.push(incoming)).ok_or(SinkFull)?;
                    Ok(Ok(()))
                }
                Err(reason) => Ok(Err(reason)),
            },
            _ if is_plain_handshake(bytes) => {
                // Open the batch first: a handshake may end the sessions of its messages.
                self.open_batch(batch, now, sink);
                Ok(self.handle_handshake(datagram, Way::Wire, now))
            }
            _ if self.relays.is_some() => self.take_relayed(datagram, now, batch, sink),
            _ => Ok(self.take_foreign(datagram, now)),
        }
    }

    /// Finds the session of a data message; fails if it may not receive this counter.
    pub(crate) fn find_session<'a>(
        &self,
        datagram: Datagram<'a>,
        now: Duration,
    ) -> Result<Incoming<'a>, DropReason> {
        let (receiver, counter) = (index_at(datagram.bytes, 4), counter_of(datagram.bytes));
        let unknown = DropReason::InboundUnknownSession;
        let peer = *self.by_index.get(&receiver).ok_or(unknown)?;
        let session = self.peers[peer].sessions.get(receiver).ok_or(unknown)?;
        if !session.is_alive(now) || counter >= REJECT_AFTER_MESSAGES {
            return Err(DropReason::InboundExpiredSession);
        }
        session.window.check(counter)?;
        Ok(Incoming {
            datagram,
            peer,
            session: receiver,
            counter,
            relay: None,
        })
    }

    /// Decrypts a batch and delivers the authentic messages.
    pub(crate) fn open_batch(
        &mut self,
        batch: &mut Batch<'_>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) {
        if batch.is_empty() {
            return;
        }
        let mut slots = ArrayVec::<_, SLOTS>::new();
        for (incoming, slot) in batch.iter().zip(sink.slots()) {
            let session = self.peers[incoming.peer].sessions.get(incoming.session);
            let sealed = &incoming.datagram.bytes[DATA_HEADER..];
            slots.extend(session.and_then(|session| {
                Open::new(&session.opening, incoming.counter, sealed, slot).ok()
            }));
        }
        // INVARIANT: no session ends before its messages are decrypted, and each slot has the length
        // of its packet.
        let is_whole = slots.len() == batch.len();
        let opened = self.aead.open(&mut slots);
        drop(slots);
        for (n, incoming) in batch.drain(..).enumerate() {
            let delivered = match is_whole && opened.is_authentic(n) {
                true => self.deliver(n, &incoming, now, sink),
                false => Err(DropReason::InboundBadTag),
            };
            if let Err(reason) = delivered {
                self.counters.drops.add(reason, 1);
            }
        }
        sink.release();
    }

    /// Delivers an authentic message, whose packet is in slot `n`.
    fn deliver(
        &mut self,
        n: usize,
        incoming: &Incoming<'_>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let Incoming {
            ref datagram,
            peer: id,
            session: receiver,
            counter,
            relay,
        } = *incoming;
        let peer = &mut self.peers[id];
        // An earlier message of the batch may have ended the session.
        let session = peer.sessions.find(receiver);
        let session = session.ok_or(DropReason::InboundUnknownSession)?;
        session.window.mark(counter)?;
        match relay {
            None => self.record_received(id, datagram, now),
            Some(relay) => self.record_relayed(id, relay, datagram, now),
        }
        let packet = sink.slot(n).unwrap_or_default();
        let is_keepalive = packet.is_empty();
        let admitted = match is_keepalive {
            true => Ok(None),
            false => self.admit(id, packet, (datagram, relay), now),
        };
        if let Ok(Some(len)) = admitted {
            sink.commit(n, len);
            let peer = &mut self.peers[id];
            peer.rx_packets += 1;
            self.counters.inbound_packets += 1;
            self.counters.inbound_bytes += len as u64;
        }
        if !is_keepalive {
            self.peers[id].timers.data_received(now);
        }
        self.after_receiving(id, receiver, relay.map_or(Way::Wire, Way::Relay), now);
        admitted.map(|_| ())
    }

    /// Checks whether a decrypted packet is admissible, and clamps it; returns its length without padding, or `None` if
    /// it was a message about paths.
    fn admit(
        &mut self,
        id: usize,
        padded: &mut [u8],
        (datagram, relay): (&Datagram<'_>, Option<RelayId>),
        now: Duration,
    ) -> Result<Option<usize>, DropReason> {
        let Some(len) = packet::length(padded) else {
            return self.take_probe(id, padded, (datagram, relay), now);
        };
        let packet = &mut padded[..len];
        let source = packet::source(packet).ok_or(DropReason::InboundMalformed)?;
        if self.allowed_ips.lookup(source) != Some(id) && self.take_by_hub(id, packet, now)? {
            return Ok(None);
        }
        match packet::decapsulate_ecn(packet, datagram.ecn) {
            Congestion::None => {}
            Congestion::Told => self.counters.congestion_told += 1,
            Congestion::Untold => self.counters.congestion_untold += 1,
        }
        self.mss_clamp.apply(packet);
        Ok(Some(len))
    }

    /// Arms timers, confirms the session `receiver`, and renews an old session if need be.
    pub(crate) fn after_receiving(&mut self, id: usize, receiver: u32, way: Way, now: Duration) {
        let peer = &mut self.peers[id];
        peer.timers.answered();
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
            self.take_way(id, way, now);
            self.session_begins(id, now);
        }
        if is_last_minute {
            self.initiate(id, now, false);
        }
    }
}
