//! One tick, top to bottom, and the wait between ticks.
//!
//! - If the writer is full, only receiving stops. Received datagrams stay in their buffers.
//! - If a socket is full, only TUN intake stops. Packets wait in the kernel's TUN queue. If there are also
//!   peers of the other address family, intake resumes soon.
//! - Nothing awaits within a tick. The loop waits only when a tick found nothing to do.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use convoy_aead::{Aead, wipe::wipe};
use convoy_gso::{
    UdpSockets,
    udp::{Family, Privileged},
};
use convoy_proto::{Arrival, Node, PeerEvent};
use convoy_tun::{Reader, Writer};
use convoy_via::Hop;
use tokio::sync::mpsc;

use crate::{
    budget::Budget,
    clock::{self, Alarm},
    command::{Requests, Task},
    error::Exit,
    metrics::Metrics,
    recent::Recent,
    streams::Streams,
    turn::Turn,
};
use halves::{InboundHalf, OutboundHalf};

mod commands;
mod halves;
mod inbound;
mod lane;
mod outbound;
mod snapshot;
mod streams;
#[cfg(test)]
mod tests;
mod through;

/// Time for commands in a tick. A slice that has begun is finished.
const COMMANDS: Duration = Duration::from_micros(400);
/// Longest time for which a tick starts serving due timers.
const TIMERS: Duration = Duration::from_micros(400);
/// Most route lookups per tick, and most lookups of a route's MTU.
const ROUTES_PER_TICK: usize = 16;
/// Most stack that a tick uses, in bytes; packets that wait to be sealed take 33 KiB of it.
const STACK_OF_A_TICK: usize = 192 << 10;
/// Ticks after which a busy loop lets tokio poll its descriptors.
const TICKS_PER_YIELD: u64 = 64;

#[derive(Debug)]
pub(crate) struct EventLoop {
    node: Node,
    /// The outer tunnel, if this one goes through another: then the sockets are for its datagrams alone.
    hop: Option<Box<Hop>>,
    sockets: UdpSockets,
    outbound: OutboundHalf,
    inbound: InboundHalf,
    metrics: Metrics,
    recent: Recent,
    /// The port of the sockets, or the one that they will have once the link is up.
    port: u16,
    fwmark: u32,
    /// Sockets registered for the next [`Command::Apply`](crate::command::Command::Apply) or
    /// [`Command::Link`](crate::command::Command::Link).
    next_sockets: Option<UdpSockets>,
    requests: Requests,
    /// Handshakes of followed peers, to the handle.
    handshake_events: mpsc::Sender<PeerEvent>,
    /// The rest of the command that is being carried out.
    task: Option<Task>,
    /// See [`Options::awaits_configuration`](crate::Options::awaits_configuration).
    awaits_configuration: bool,
    /// The last [`Signals::routes`](crate::command::Signals::routes) that was handled.
    known_routes: u32,
    /// The last [`Signals::wall_clock`](crate::command::Signals::wall_clock) that was handled.
    known_wall_clock: u32,
    alarm: Alarm,
    /// Ticks since the loop last waited. A busy loop must poll its sockets itself.
    busy_ticks: u32,
    exit: Option<Exit>,
}

/// Everything that an [`EventLoop`] starts with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// `None` if the link is down.
    pub(crate) sockets: Option<UdpSockets>,
    pub(crate) port: u16,
    pub(crate) aead: Aead,
    pub(crate) clamp_mss: bool,
    pub(crate) segmentation: bool,
    pub(crate) batch: usize,
    pub(crate) awaits_configuration: bool,
    pub(crate) has_outer: bool,
    pub(crate) privileged: Arc<dyn Privileged>,
    pub(crate) metrics: Metrics,
    pub(crate) requests: Requests,
    pub(crate) handshake_events: mpsc::Sender<PeerEvent>,
}

impl EventLoop {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let mut node = Node::new(parts.aead);
        node.set_wall_clock(clock::wall_clock_of_boot());
        node.set_clamp_mss(parts.clamp_mss);
        node.set_link(parts.sockets.is_some(), Duration::ZERO);
        node.set_port(parts.port, Duration::ZERO);
        let hop = parts.has_outer.then(|| {
            let mut hop = Box::new(Hop::new(parts.aead));
            hop.node().set_wall_clock(clock::wall_clock_of_boot());
            hop.set_link(parts.sockets.is_some(), Duration::ZERO);
            hop
        });
        Ok(Self {
            node,
            hop,
            sockets: parts.sockets.unwrap_or_else(UdpSockets::closed),
            outbound: OutboundHalf::new(
                parts.reader,
                parts.batch,
                parts.segmentation,
                Streams::new(parts.privileged),
            ),
            inbound: InboundHalf::new(parts.writer),
            metrics: parts.metrics,
            recent: Recent::default(),
            port: parts.port,
            fwmark: 0,
            next_sockets: None,
            requests: parts.requests,
            handshake_events: parts.handshake_events,
            task: None,
            awaits_configuration: parts.awaits_configuration,
            known_routes: 0,
            known_wall_clock: 0,
            alarm: Alarm::new()?,
            busy_ticks: 0,
            exit: None,
        })
    }

    /// Runs until the tunnel ends.
    pub(crate) async fn run(mut self) -> Exit {
        loop {
            let worked = self.tick();
            self.metrics.tick_ended();
            let of_hop = self.hop.as_mut().map(|hop| hop.node().take_keys_ended());
            if self.node.take_keys_ended() | of_hop.unwrap_or_default() {
                // ring leaves copies of keys on the stack.
                wipe::<STACK_OF_A_TICK>();
            }
            if let Some(exit) = self.exit.take() {
                return exit;
            }
            if !worked {
                self.wait().await;
            } else if self.metrics.ticks.is_multiple_of(TICKS_PER_YIELD) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Runs every step once; returns whether there was anything to do.
    #[inline(never)]
    fn tick(&mut self) -> bool {
        self.metrics.ticks += 1;
        let now = clock::now();
        self.recent.tick(now, self.node.counters());
        self.sockets.allow_route_questions(ROUTES_PER_TICK);
        let was_stopped = self.outbound.is_stopped();

        // Changes by the user.
        let commanded = self.run_commands(&Turn::begin(COMMANDS), now);
        // Due handshakes and keepalives.
        let timers = Turn::begin(TIMERS);
        while self.node.handle_timeout(now) && timers.has_share_left() {}
        if let Some(hop) = &mut self.hop {
            while hop.handle_timeout(now) && timers.has_share_left() {}
        }
        // UDP → TUN: one receive call per socket, as far as the writer has room.
        let received = self.receive(now);
        // Streams to TURN servers: read each once.
        let received = self.receive_from_streams(now) || received;
        // Route lookups for peers whose datagrams arrive in a new way, or after a change of routes.
        let asked = self.ask_for_routes();
        // TUN → UDP: a few batches at most, unless a socket is full.
        let sent = self.take_from_tun(now);
        // Control datagrams among them may be the first on a changed route.
        let asked = self.ask_for_routes() || asked;
        // Control datagrams first, then the queue: one call per batch.
        self.send_control(now);
        self.flush(now);
        self.send_to_streams(now);
        let node = through::outward(&mut self.node, &mut self.hop);
        self.outbound.lose_patience(node, now);
        // One hand-over to the writer.
        self.deliver(now);
        // To the handle, as far as it has room.
        self.report_handshakes();

        // Tick again at once: no event announces that intake can go on.
        let resumed = was_stopped && !self.outbound.is_stopped();
        self.busy_ticks = self.busy_ticks.saturating_add(1);
        commanded || received || asked || sent || resumed
    }

    fn ask_for_routes(&mut self) -> bool {
        let mut budget = Budget::new(ROUTES_PER_TICK);
        let mut asked = false;
        while budget.spend()
            && let Some(question) = self.outward().poll_source_question()
        {
            let Arrival { address, interface } = question.arrival;
            let is_same_way = self.sockets.lead_out_by(interface, question.to, address);
            self.outward()
                .answer_source_question(&question, is_same_way);
            asked = true;
        }
        asked
    }

    fn report_handshakes(&mut self) {
        let nodes = self.hop.as_mut().map(|hop| hop.node());
        for node in [&mut self.node].into_iter().chain(nodes) {
            while node.has_handshake_events()
                && let Ok(room) = self.handshake_events.try_reserve()
                && let Some(event) = node.poll_handshake_event()
            {
                room.send(event);
            }
        }
    }

    /// Waits for the first thing that a tick could work on.
    async fn wait(&mut self) {
        let Self {
            node,
            hop,
            sockets,
            outbound,
            inbound,
            requests,
            handshake_events,
            alarm,
            ..
        } = self;
        let mut has_events = node.has_handshake_events();
        let timeout = node.poll_timeout();
        let timeout_of_hop = hop.as_ref().and_then(|hop| hop.poll_timeout());
        let outward = through::outward(node, hop);
        has_events |= outward.has_handshake_events();
        let deadline = [
            timeout,
            timeout_of_hop,
            outbound.retry_at(),
            outbound.next_patience_end(outward, clock::now()),
            inbound.retry_at,
        ];
        if let Some(at) = deadline.into_iter().flatten().min() {
            alarm.arm(at);
        }
        let has_room = !outbound.is_stopped() && outbound.batch.is_none();
        let full = Family::BOTH.map(|family| outbound.is_full(family));
        let OutboundHalf {
            reader, streams, ..
        } = outbound;
        let has_streams = !streams.is_empty();
        tokio::select! {
            // Poll in the order of the tick; this also spares tokio's random number.
            biased;
            () = requests.ready() => {}
            () = alarm.rings() => {}
            () = sockets.readable(Family::V4), if inbound.can_receive() => {}
            () = sockets.readable(Family::V6), if inbound.can_receive() => {}
            () = inbound.writer.room(), if inbound.is_writer_full => {}
            // Also while the link is down: packets may arrive before the command that sets it up.
            () = reader.ready(), if has_room => {}
            () = poll_fn(|cx| streams.poll_ready(inbound.can_receive(), cx)), if has_streams => {}
            () = sockets.writable(Family::V4), if full[0] => {}
            () = sockets.writable(Family::V6), if full[1] => {}
            Ok(_) = handshake_events.reserve(), if has_events => {}
        }
        self.busy_ticks = 0;
    }
}
