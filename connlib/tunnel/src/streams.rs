//! Streams to TURN servers, TCP or TLS: those that are open, by server.
//!
//! A stream has a queue of its own, which never stops intake: what does not fit is dropped, as by a full router.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use convoy_carrier::{Carrier, Phase, Prepare, Roots, Tls};
use convoy_gso::udp::Privileged;
use convoy_proto::{
    Node, RelayId, SinkFull,
    config::{Relay, RelayTransport},
    counters::DropReason,
};
use tracing::debug;

/// Most streams that are open at once: one carries everything, others only while servers fail.
pub(crate) const MAX_STREAMS: usize = 4;

/// The open streams, at most one for each server.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) open: Vec<(RelayId, Carrier)>,
    /// The firewall mark that they have.
    pub(crate) mark: u32,
    privileged: Arc<dyn Privileged>,
}

impl Streams {
    pub(crate) fn new(privileged: Arc<dyn Privileged>) -> Self {
        Self {
            open: Vec::new(),
            mark: 0,
            privileged,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a frame to a server's stream.
    ///
    /// # Errors
    /// [`SinkFull`] if there is no room, or no stream.
    pub(crate) fn append(&mut self, relay: RelayId, frame: &[u8]) -> Result<(), SinkFull> {
        let carrier = self.find(relay).ok_or(SinkFull)?;
        carrier.append(frame).map_err(|_| SinkFull)
    }

    /// The same for a control message, for which data leaves some room.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(crate) fn append_control(&mut self, relay: RelayId, frame: &[u8]) -> Result<(), SinkFull> {
        let carrier = self.find(relay).ok_or(SinkFull)?;
        carrier.append_control(frame).map_err(|_| SinkFull)
    }

    fn find(&mut self, relay: RelayId) -> Option<&mut Carrier> {
        let stream = self.open.iter_mut().find(|(id, _)| *id == relay);
        stream.map(|(_, carrier)| carrier)
    }

    /// Ready once a tick has something to do for a stream.
    pub(crate) fn poll_ready(&mut self, can_receive: bool, cx: &mut Context<'_>) -> Poll<()> {
        let mut is_ready = false;
        for (_, carrier) in &mut self.open {
            is_ready |= carrier.poll_ready(can_receive, cx).is_ready();
        }
        match is_ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    pub(crate) fn begin(
        &mut self,
        id: RelayId,
        relay: &Relay,
        node: &mut Node,
    ) -> Result<(), String> {
        self.close(id, node);
        if self.open.len() == MAX_STREAMS {
            return Err("there are too many streams to relays".to_owned());
        }
        let tls = match relay.transport {
            RelayTransport::Tls => Some(tls(relay)?),
            RelayTransport::Tcp | RelayTransport::Udp => None,
        };
        debug!(server = %relay.server, host = relay.host, "Connecting to the relay");
        let prepare = (self.mark != 0).then(|| self.prepare());
        let carrier = Carrier::open(relay.server, tls.as_ref(), prepare);
        self.open.push((id, carrier));
        Ok(())
    }

    fn prepare(&self) -> Prepare {
        let (privileged, mark) = (Arc::clone(&self.privileged), self.mark);
        Prepare::new(move |socket: BorrowedFd<'_>| -> io::Result<()> {
            privileged.prepare_stream(socket, mark)
        })
    }

    pub(crate) fn close(&mut self, id: RelayId, node: &mut Node) {
        if let Some(n) = self.open.iter().position(|(it, _)| *it == id) {
            end(self.open.swap_remove(n).1, node);
        }
    }

    pub(crate) fn flush(&mut self, node: &mut Node, now: Duration) {
        // What has arrived before the end counts.
        let ended = self.open.extract_if(.., |(_, carrier)| {
            carrier.flush();
            matches!(carrier.phase(), Phase::Closed(_)) && !carrier.has_frame()
        });
        for (id, carrier) in ended {
            if let Phase::Closed(why) = carrier.phase() {
                debug!(%why, "The stream to a relay has ended");
                node.relay_closed(id, &why.to_string(), now);
            }
            end(carrier, node);
        }
    }

    /// Ends all streams: they have another mark than new ones would have.
    pub(crate) fn close_all(&mut self, node: &mut Node, now: Duration) {
        for (id, carrier) in self.open.drain(..) {
            end(carrier, node);
            node.relay_closed(id, "the firewall mark has changed", now);
        }
    }
}

/// Ends a stream, and counts the frames that it leaves.
fn end(carrier: Carrier, node: &mut Node) {
    let left = carrier.end();
    let drops = &mut node.counters().drops;
    drops.add(DropReason::InboundRelayGone, left.inbound as u64);
    drops.add(DropReason::OutboundRelayNotReady, left.outbound as u64);
}

fn tls(relay: &Relay) -> Result<Tls, String> {
    let roots = Roots::from_bytes(&relay.authorities.0);
    let roots = roots.ok_or("the trusted authorities cannot be read")?;
    let tls = Tls::new(&relay.host, &roots);
    tls.map_err(|error| format!("`{}`: {error}", relay.host))
}
