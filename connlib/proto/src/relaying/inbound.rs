//! Datagrams and frames of TURN servers.

use std::{net::SocketAddr, time::Duration};

use convoy_turn::{parse, parse_indication};
use convoy_types::Datagram;

use crate::{
    counters::DropReason,
    handshake::Way,
    inbound::{Batch, Handled, is_handshake},
    messages::DATA_OVERHEAD,
    node::Node,
    relays::RelayId,
    seams::{PacketSink, SinkFull},
};

/// Result of taking one datagram.
type Taken = Result<Result<(), DropReason>, SinkFull>;

impl Node {
    /// Handles frames of a server's stream, each whole, in their order, while `sink` has room.
    pub fn handle_relay_frames<'a>(
        &mut self,
        relay: RelayId,
        frames: impl IntoIterator<Item = &'a [u8]>,
        now: Duration,
        sink: &mut impl PacketSink,
    ) -> Handled {
        let mut batch = Batch::new();
        let mut handled = Handled {
            datagrams: 0,
            is_sink_full: false,
        };
        for bytes in frames {
            let server = self.relays.as_mut().and_then(|it| it.server(relay));
            let Some(server) = server.filter(|it| it.is_stream()) else {
                self.counters.drops.add(DropReason::InboundRelayGone, 1);
                handled.datagrams += 1;
                continue;
            };
            let datagram = Datagram {
                bytes,
                from: server.relay.server,
                arrival: None,
                ecn: 0,
            };
            match self.take_from(relay, datagram, now, &mut batch, sink) {
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

    /// Takes a datagram that is no WireGuard message: of a TURN server, or of a STUN server.
    #[inline(never)]
    pub(crate) fn take_relayed<'a>(
        &mut self,
        datagram: Datagram<'a>,
        now: Duration,
        batch: &mut Batch<'a>,
        sink: &mut impl PacketSink,
    ) -> Taken {
        let Some(relay) = self.relay_at(datagram.from) else {
            return Ok(self.take_foreign(datagram, now));
        };
        // One server may have both trades.
        if convoy_stun::looks_like_stun(datagram.bytes) && self.take_foreign(datagram, now).is_ok()
        {
            return Ok(Ok(()));
        }
        self.take_from(relay, datagram, now, batch, sink)
    }

    /// Returns the TURN server by UDP that has this address.
    pub(crate) fn relay_at(&self, address: SocketAddr) -> Option<RelayId> {
        let mut servers = self.relays.as_deref()?.servers.iter();
        let server = servers.find(|it| !it.is_stream() && it.relay.server == address);
        server.map(|it| it.id)
    }

    fn take_from<'a>(
        &mut self,
        relay: RelayId,
        datagram: Datagram<'a>,
        now: Duration,
        batch: &mut Batch<'a>,
        sink: &mut impl PacketSink,
    ) -> Taken {
        let Some(server) = self.relays.as_mut().and_then(|it| it.server(relay)) else {
            return Ok(Err(DropReason::InboundRelayStranger));
        };
        let Some((channel, bytes)) = parse(datagram.bytes) else {
            if let Some((from, bytes)) = parse_indication(datagram.bytes) {
                let indicated = Datagram {
                    bytes,
                    from,
                    arrival: None,
                    ..datagram
                };
                return self.take_indicated(relay, indicated, now, batch, sink);
            }
            if !server.client.handle_message(datagram.bytes, now) {
                return Ok(Err(DropReason::InboundRelayStranger));
            }
            self.update_relays(now);
            return Ok(Ok(()));
        };
        let Some(from) = server.client.peer(channel) else {
            return Ok(Err(DropReason::InboundRelayUnknownChannel));
        };
        let relayed = Datagram {
            bytes,
            from,
            arrival: None,
            ecn: datagram.ecn,
        };
        self.take_wrapped(relay, relayed, now, batch, sink)
    }

    /// Takes a datagram of a peer without a channel: data in its session, as it tries addresses.
    fn take_indicated<'a>(
        &mut self,
        relay: RelayId,
        datagram: Datagram<'a>,
        now: Duration,
        batch: &mut Batch<'a>,
        sink: &mut impl PacketSink,
    ) -> Taken {
        let is_data = datagram.bytes.first_chunk() == Some(&[4, 0, 0, 0]);
        let is_needed = self.relays.as_ref().is_some_and(|it| !it.needs.is_empty());
        if !is_data || !is_needed {
            return Ok(Err(DropReason::InboundRelayStranger));
        }
        self.take_wrapped(relay, datagram, now, batch, sink)
    }

    /// Takes a message of the peer at `datagram.from`.
    fn take_wrapped<'a>(
        &mut self,
        relay: RelayId,
        datagram: Datagram<'a>,
        now: Duration,
        batch: &mut Batch<'a>,
        sink: &mut impl PacketSink,
    ) -> Taken {
        let bytes = datagram.bytes;
        match (bytes.first_chunk(), bytes.len()) {
            (Some([4, 0, 0, 0]), DATA_OVERHEAD..) => match self.find_session(datagram, now) {
                Ok(mut incoming) => {
                    incoming.relay = Some(relay);
                    let is_reserved = sink.reserve(bytes.len() - DATA_OVERHEAD);
                    is_reserved.then(|| batch.push(incoming)).ok_or(SinkFull)?;
                    Ok(Ok(()))
                }
                Err(reason) => Ok(Err(reason)),
            },
            (Some([1..=3, 0, 0, 0]), _) if is_handshake(bytes) => {
                self.open_batch(batch, now, sink);
                Ok(self.handle_handshake(datagram, Way::Relay(relay), now))
            }
            _ => Ok(Err(DropReason::InboundNotWireGuard)),
        }
    }

    /// Records an authentic message of the peer that a relay has brought: the relay works, and no endpoint moves.
    pub(crate) fn record_relayed(
        &mut self,
        id: usize,
        relay: RelayId,
        datagram: &Datagram<'_>,
        now: Duration,
    ) {
        if let Some(server) = self.relays.as_mut().and_then(|it| it.server(relay)) {
            server.client.note_received();
        }
        let peer = &mut self.peers[id];
        peer.rx_bytes += datagram.bytes.len() as u64;
        peer.timers.authenticated_received(now);
    }
}
