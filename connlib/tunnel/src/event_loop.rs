//! One tick, top to bottom, and the wait between ticks.
//!
//! - The writer is full: only receiving stops. What was received stays in its buffers.
//! - The socket is full: only TUN intake stops. The kernel's TUN queue is where waiting happens.
//! - Nothing awaits within a tick. The loop waits only when a tick found nothing to do.

use std::{io, net::SocketAddr, time::Duration};

use convoy_gso::{Flushed, Flusher, GsoQueue, ReceiveBuffers, UdpSockets, udp::Family};
use convoy_proto::{Arrival, ControlDatagram, Node, STACK_BUFFER_BYTES, counters::DropReason};
use convoy_tun::{InboundBatch, OutboundBatch, Reader, ReaderExit, TryRecv, Writer};
use tokio::sync::{mpsc, watch};

use crate::{
    adapters::{FromTun, ToUdp},
    budget::Budget,
    clock::{self, Alarm},
    command::{Command, Signals},
    handle::Exit,
    load::Load,
    metrics::Metrics,
    routes::Routes,
};

mod commands;
mod receive;
#[cfg(test)]
mod tests;

/// Batches that one tick takes from the TUN reader.
const BATCHES_PER_TICK: usize = 4;
/// Questions about routes that one tick asks the kernel.
const ROUTES_PER_TICK: usize = 16;
/// Ticks after which a loop that is never idle lets tokio look at its timers and sockets.
const TICKS_PER_YIELD: u64 = 64;

#[derive(Debug)]
pub(crate) struct EventLoop {
    pub(crate) node: Node,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    pub(crate) sockets: UdpSockets,
    /// The port of the sockets, or the one they are to have.
    pub(crate) port: u16,
    pub(crate) flusher: Flusher,
    pub(crate) metrics: Metrics,
    pub(crate) fwmark: u32,
    /// Packets that one intake takes out of a batch.
    batch: usize,
    queue: GsoQueue,
    /// The batch from the TUN that is being worked off.
    outbound: Option<OutboundBatch>,
    received: ReceiveBuffers,
    /// The batch for the TUN that is being filled.
    inbound: Option<InboundBatch>,
    /// A control datagram that the socket had no room for.
    control: Option<ControlDatagram>,
    /// Which socket is served first.
    first_family: Family,
    /// The socket that the queue's oldest batch waits for.
    blocked: Option<Family>,
    /// When to send again after the kernel had no buffers.
    retry_at: Option<Duration>,
    /// When to receive again after an error.
    receive_at: Option<Duration>,
    /// Receive calls on each socket since one that brought something.
    calls_in_vain: [u32; 2],
    ticks_since_wait: u32,
    load: Load,
    writer_full: bool,
    /// Sockets that were registered for the [`Command::Apply`] or [`Command::Link`] to come.
    next_sockets: Option<UdpSockets>,
    alarm: Alarm,
    routes: Routes,
    /// The last change of routes that the state machine was told of.
    known_routes: u32,
    commands: mpsc::Receiver<Command>,
    signals: watch::Receiver<Signals>,
    exit: Option<Exit>,
}

/// Everything that an [`EventLoop`] starts with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// None if the link is down.
    pub(crate) sockets: Option<UdpSockets>,
    pub(crate) port: u16,
    pub(crate) segmentation: bool,
    pub(crate) batch: usize,
    pub(crate) metrics: Metrics,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) signals: watch::Receiver<Signals>,
}

impl EventLoop {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let mut node = Node::default();
        node.set_link(parts.sockets.is_some(), Duration::ZERO);
        Ok(Self {
            node,
            reader: parts.reader,
            writer: parts.writer,
            sockets: parts.sockets.unwrap_or_else(UdpSockets::closed),
            port: parts.port,
            flusher: Flusher::new(parts.segmentation),
            metrics: parts.metrics,
            fwmark: 0,
            batch: parts.batch,
            queue: GsoQueue::default(),
            outbound: None,
            received: ReceiveBuffers::default(),
            inbound: None,
            control: None,
            first_family: Family::V4,
            blocked: None,
            retry_at: None,
            receive_at: None,
            calls_in_vain: [0; 2],
            ticks_since_wait: 0,
            load: Load::new(clock::now(), clock::thread_time()),
            writer_full: false,
            next_sockets: None,
            alarm: Alarm::new()?,
            routes: Routes::new(),
            known_routes: 0,
            commands: parts.commands,
            signals: parts.signals,
            exit: None,
        })
    }

    /// Runs until the tunnel ends.
    pub(crate) async fn run(mut self) -> Exit {
        loop {
            let worked = self.tick();
            if let Some(exit) = self.exit.take() {
                return exit;
            }
            self.ticks_since_wait = self.ticks_since_wait.saturating_add(1);
            if !worked {
                self.wait().await;
                self.ticks_since_wait = 0;
            } else if self.metrics.ticks.is_multiple_of(TICKS_PER_YIELD) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// One turn of everything. Returns whether there was anything to do.
    #[inline(never)]
    fn tick(&mut self) -> bool {
        self.metrics.ticks += 1;
        let now = clock::now();
        let was_stopped = self.is_sending_stopped();

        // What the user has changed.
        let commanded = self.run_commands(now);
        // Handshakes and keepalives that are due.
        self.node.handle_timeout(now);
        // UDP → TUN: what one receive call a socket brings, as far as the writer has room.
        let received = self.receive(now);
        // Which way answers would go, where a peer was heard on another way.
        let asked = self.ask_for_routes();
        // Who reads and writes the TUN: other threads, too, where this one has no time left.
        if let Some(spare) = self.load.judge(now, clock::thread_time) {
            self.reader.set_alone(spare.reads);
            self.writer.set_alone(spare.writes);
        }
        // TUN → UDP: at most a few batches, unless the socket is still full.
        let sent = self.take_from_tun(now);
        // What must not wait behind bulk data, then the queue: one send a batch.
        self.send_control(now);
        self.flush(now);
        // One hand-over to the writer.
        self.deliver(now);

        // Sending may go on: what it left behind is waited for by nobody.
        let resumed = was_stopped && !self.is_sending_stopped();
        commanded || received || sent || asked || resumed
    }

    fn is_sending_stopped(&self) -> bool {
        self.blocked.is_some() || self.control.is_some() || self.retry_at.is_some()
    }

    /// Whether something waits for this socket to be writable.
    fn is_blocked(&self, family: Family) -> bool {
        let control = self.control.as_ref();
        self.blocked == Some(family)
            || control.is_some_and(|c| Family::of(c.destination.to) == family)
    }

    #[inline(never)]
    fn take_from_tun(&mut self, now: Duration) -> bool {
        let mut worked = false;
        let mut budget = Budget::new(BATCHES_PER_TICK);
        let mut buffer = [0; STACK_BUFFER_BYTES];
        let can_send = self.node.is_up() && !self.is_sending_stopped();
        if can_send {
            let mut sink = ToUdp(&mut self.queue);
            self.node.drain_held(now, &mut buffer, &mut sink);
        }
        // Held packets alone have filled the queue: more may be left.
        worked |= can_send && !self.queue.has_room();
        while can_send && self.queue.has_room() && budget.spend() {
            let Some(mut batch) = self.next_outbound() else {
                break;
            };
            worked = true;
            for _ in 0..self.batch {
                if !self.queue.has_room() {
                    break;
                }
                let Some(packet) = batch.next() else { break };
                let mut sink = ToUdp(&mut self.queue);
                self.node
                    .handle_outbound(&mut FromTun(packet), now, &mut buffer, &mut sink);
            }
            if batch.remaining() > 0 {
                self.outbound = Some(batch);
            }
        }
        worked
    }

    /// The batch that is not worked off yet, or the next one.
    fn next_outbound(&mut self) -> Option<OutboundBatch> {
        if let Some(batch) = self.outbound.take() {
            return Some(batch);
        }
        match self.reader.try_recv() {
            Ok(batch) => {
                self.metrics.batch(&batch, self.node.counters());
                Some(batch)
            }
            Err(TryRecv::Empty) => None,
            Err(TryRecv::Closed(exit)) => {
                self.end(exit);
                None
            }
        }
    }

    /// The reader gives its reason once; later it has only stopped.
    fn end(&mut self, exit: ReaderExit) {
        self.exit.get_or_insert_with(|| exit_for(exit));
    }

    fn ask_for_routes(&mut self) -> bool {
        let mut budget = Budget::new(ROUTES_PER_TICK);
        let mut asked = false;
        while budget.spend()
            && let Some(question) = self.node.poll_source_question()
        {
            let Arrival { address, interface } = question.arrival;
            let source = SocketAddr::new(address, self.port);
            let is_same_way = self
                .routes
                .lead_out_by(interface, question.to, source, self.fwmark);
            self.node.answer_source_question(&question, is_same_way);
            asked = true;
        }
        asked
    }

    fn send_control(&mut self, now: Duration) {
        self.retry_at = self.retry_at.filter(|at| now < *at);
        if self.retry_at.is_some() {
            return;
        }
        while let Some(control) = self.control.take().or_else(|| self.node.poll_control()) {
            let to = control.destination;
            let flusher = &mut self.flusher;
            if control.is_cookie {
                flusher.send_once(&to, &control.datagram, &mut self.sockets);
                continue;
            }
            match flusher.send_now(&to, &control.datagram, &mut self.sockets, now) {
                Flushed::Done => continue,
                Flushed::Blocked(_) => {}
                Flushed::RetryAt(at) => self.retry_at = Some(at),
            }
            self.control = Some(control);
            break;
        }
    }

    #[inline(never)]
    fn flush(&mut self, now: Duration) {
        self.blocked = None;
        if self.retry_at.is_some() {
            return;
        }
        match self.flusher.flush(&mut self.queue, &mut self.sockets, now) {
            Flushed::Done => {}
            Flushed::Blocked(to) => self.blocked = Some(Family::of(to)),
            Flushed::RetryAt(at) => self.retry_at = Some(at),
        }
        for to in self.flusher.lost_sources() {
            self.node.forget_source(to);
        }
        for (to, len) in self.flusher.too_big() {
            self.node.handle_too_big(to, len, now);
        }
    }

    fn deliver(&mut self, now: Duration) {
        while let Some(reply) = self.node.poll_reply() {
            // With the writer full it is lost, as any ICMP error may be.
            if !self.deliver_reply(&reply, now) {
                let drops = &mut self.node.counters().drops;
                drops.add(DropReason::InboundReplyLost, 1);
            }
        }
        if let Some(batch) = self.inbound.take_if(|batch| !batch.is_empty()) {
            self.writer.submit(batch);
        }
        self.writer.wake();
    }

    /// Puts an ICMP error into the batch for the TUN or, if that is full, into another one.
    fn deliver_reply(&mut self, reply: &[u8], now: Duration) -> bool {
        loop {
            let batch = match &mut self.inbound {
                Some(batch) => batch,
                None => match self.writer.take(now) {
                    Some(batch) => self.inbound.insert(batch),
                    None => return false,
                },
            };
            if let Some(slot) = batch.slot(reply.len()) {
                slot[..reply.len()].copy_from_slice(reply);
                batch.commit(reply.len());
                return true;
            }
            if let Some(full) = self.inbound.take() {
                self.writer.enqueue(full);
            }
        }
    }

    /// Waits for the first thing that a tick could work on.
    async fn wait(&mut self) {
        let deadline = [self.node.poll_timeout(), self.retry_at, self.receive_at];
        if let Some(at) = deadline.into_iter().flatten().min() {
            self.alarm.arm(at);
        }
        let can_receive = !self.writer_full && self.receive_at.is_none();
        let has_room = !self.is_sending_stopped() && self.outbound.is_none();
        let may_retry = self.retry_at.is_none();
        let blocked = Family::BOTH.map(|family| may_retry && self.is_blocked(family));
        tokio::select! {
            // The order of the tick; and no random number is drawn.
            biased;
            Some(command) = self.commands.recv() => self.run_command(command, clock::now()),
            _ = self.signals.changed() => self.signals.mark_changed(),
            () = self.alarm.rings() => {}
            () = self.sockets.readable(Family::V4), if can_receive => {}
            () = self.sockets.readable(Family::V6), if can_receive => {}
            () = self.writer.room(), if self.writer_full => {}
            // Also while the link is down: packets may be ahead of the word that it is up.
            batch = self.reader.recv(), if has_room => match batch {
                Ok(batch) => {
                    self.metrics.batch(&batch, self.node.counters());
                    self.outbound = Some(batch);
                }
                Err(exit) => self.end(exit),
            },
            () = self.sockets.writable(Family::V4), if blocked[0] => {}
            () = self.sockets.writable(Family::V6), if blocked[1] => {}
        }
    }
}

fn exit_for(exit: ReaderExit) -> Exit {
    match exit {
        ReaderExit::Stopped => Exit::Stopped,
        ReaderExit::InterfaceDeleted => Exit::InterfaceDeleted,
        ReaderExit::Failed(error) => Exit::Failed(format!("cannot read from the TUN: {error}")),
    }
}
