//! TUN → UDP: intake from the reader, control datagrams, and the flush of the queue.

use std::time::Duration;

use convoy_gso::{Flushed, Flusher, GsoQueue, UdpSockets, udp::Family};
use convoy_proto::{ControlDatagram, Node, Staging, counters::DropReason};
use convoy_tun::{OutboundBatch, Reader, ReaderExit, TryRecv};

use super::EventLoop;
use crate::{
    adapters::{BatchFromTun, ToUdp},
    budget::Budget,
    error::Exit,
    metrics::Metrics,
};

/// Batches that one tick takes from the TUN reader.
const BATCHES_PER_TICK: usize = 4;

/// Everything between the TUN reader and the sockets.
#[derive(Debug)]
pub(super) struct OutboundHalf {
    pub(super) reader: Reader,
    pub(super) flusher: Flusher,
    /// Packets that one intake takes out of a batch.
    packets_per_intake: usize,
    /// The batch from the TUN that is being worked off.
    pub(super) batch: Option<OutboundBatch>,
    queue: GsoQueue,
    /// A control datagram that its socket had no room for.
    pub(super) control: Option<ControlDatagram>,
    pub(super) sending: [Sending; 2],
}

/// Whether the socket of an address family takes datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sending {
    #[default]
    Open,
    /// Full: wait until it is writable.
    Full,
    /// The kernel had no buffers: try again at this time.
    RetryAt(Duration),
}

impl OutboundHalf {
    pub(super) fn new(reader: Reader, packets_per_intake: usize, segmentation: bool) -> Self {
        Self {
            reader,
            flusher: Flusher::new(segmentation),
            packets_per_intake,
            batch: None,
            queue: GsoQueue::default(),
            control: None,
            sending: [Sending::Open; 2],
        }
    }

    /// Whether intake waits for a socket.
    pub(super) fn is_stopped(&self) -> bool {
        self.control.is_some() || self.sending.iter().any(|state| *state != Sending::Open)
    }

    /// Whether a control datagram was held back and need not be any more.
    pub(super) fn can_send_control(&self) -> bool {
        let is_open =
            |control: &ControlDatagram| self.state(control_family(control)) == Sending::Open;
        self.control.as_ref().is_some_and(is_open)
    }

    pub(super) fn is_full(&self, family: Family) -> bool {
        self.state(family) == Sending::Full
    }

    pub(super) fn retry_at(&self) -> Option<Duration> {
        let at = self.sending.iter().filter_map(|state| match state {
            Sending::RetryAt(at) => Some(*at),
            Sending::Open | Sending::Full => None,
        });
        at.min()
    }

    /// Drops everything on its way out, and returns the number of packets.
    pub(super) fn discard(&mut self, metrics: &mut Metrics, node: &mut Node) -> usize {
        let mut packets = 0;
        while let Ok(batch) = self.next_batch(metrics, node) {
            packets += batch.remaining();
        }
        while let Some(batch) = self.queue.front() {
            packets += batch.segments();
            self.queue.pop_front();
        }
        self.control = None;
        self.sending = [Sending::Open; 2];
        self.flusher.forget_ahead();
        packets
    }

    /// The batch that is not yet worked off, or the next one.
    fn next_batch(
        &mut self,
        metrics: &mut Metrics,
        node: &mut Node,
    ) -> Result<OutboundBatch, TryRecv> {
        if let Some(batch) = self.batch.take() {
            return Ok(batch);
        }
        let batch = self.reader.try_recv()?;
        metrics.batch(&batch, node.counters());
        Ok(batch)
    }

    fn state(&self, family: Family) -> Sending {
        self.sending[family as usize]
    }

    /// Opens the sockets whose pause is over. Returns whether none has a pause left.
    fn end_pauses(&mut self, now: Duration) -> bool {
        for state in &mut self.sending {
            if matches!(state, Sending::RetryAt(at) if *at <= now) {
                *state = Sending::Open;
            }
        }
        self.retry_at().is_none()
    }

    /// Sends waiting control datagrams. One that is refused stays for the next tick.
    fn send_control(&mut self, node: &mut Node, sockets: &mut UdpSockets, now: Duration) {
        if !self.end_pauses(now) {
            return;
        }
        while let Some(control) = self.control.take().or_else(|| node.poll_control()) {
            let to = control.destination;
            if control.is_cookie {
                self.flusher.send_once(&to, &control.datagram, sockets);
                continue;
            }
            let sent = self.flusher.send_now(&to, &control.datagram, sockets, now);
            let state = sending_after(&sent);
            self.sending[control_family(&control) as usize] = state;
            if state != Sending::Open {
                self.control = Some(control);
                break;
            }
        }
    }

    /// Sends the queue, oldest batch first, as far as the kernel takes it.
    fn flush(&mut self, sockets: &mut UdpSockets, now: Duration) {
        if self.retry_at().is_some() {
            return;
        }
        self.sending = [Sending::Open; 2];
        let flushed = self.flusher.flush(&mut self.queue, sockets, now);
        if let Some(batch) = self.queue.front() {
            let family = Family::of(batch.destination.to);
            self.sending[family as usize] = sending_after(&flushed);
        }
    }
}

fn control_family(control: &ControlDatagram) -> Family {
    Family::of(control.destination.to)
}

fn sending_after(flushed: &Flushed) -> Sending {
    match flushed {
        Flushed::Done => Sending::Open,
        Flushed::Blocked(_) => Sending::Full,
        Flushed::RetryAt(at) => Sending::RetryAt(*at),
    }
}

impl EventLoop {
    #[inline(never)]
    pub(super) fn take_from_tun(&mut self, now: Duration) -> bool {
        let Self {
            node,
            outbound,
            metrics,
            ..
        } = self;
        if outbound.is_stopped() {
            return false;
        }
        if !node.is_up() {
            self.await_link();
            return false;
        }
        // Zeroing 32 KiB of stack is not for ticks without a packet.
        let mut staging = None;
        if node.has_ready() {
            let staging = staging.get_or_insert_with(Staging::default);
            node.drain_held(now, staging, &mut ToUdp(&mut outbound.queue));
        }
        // Held packets alone have filled the queue: more may be left.
        let mut worked = !outbound.queue.has_room();
        let mut budget = Budget::new(BATCHES_PER_TICK);
        while outbound.queue.has_room() && budget.spend() {
            let mut batch = match outbound.next_batch(metrics, node) {
                Ok(batch) => batch,
                Err(TryRecv::Empty) => break,
                Err(TryRecv::Closed(exit)) => {
                    self.end(exit);
                    break;
                }
            };
            worked = true;
            let mut packets = BatchFromTun(&mut batch, outbound.packets_per_intake);
            let mut sink = ToUdp(&mut outbound.queue);
            let staging = staging.get_or_insert_with(Staging::default);
            node.handle_outbound(&mut packets, now, staging, &mut sink);
            if batch.remaining() > 0 {
                outbound.batch = Some(batch);
            }
        }
        worked
    }

    /// Keeps a batch that is ahead of the news that the link is up.
    fn await_link(&mut self) {
        match self.outbound.next_batch(&mut self.metrics, &mut self.node) {
            Ok(batch) => self.outbound.batch = Some(batch),
            Err(TryRecv::Empty) => {}
            Err(TryRecv::Closed(exit)) => self.end(exit),
        }
    }

    /// The reader gives its reason once; later it has only stopped.
    fn end(&mut self, exit: ReaderExit) {
        self.exit.get_or_insert_with(|| exit_for(exit));
    }

    pub(super) fn send_control(&mut self, now: Duration) {
        self.outbound
            .send_control(&mut self.node, &mut self.sockets, now);
    }

    #[inline(never)]
    pub(super) fn flush(&mut self, now: Duration) {
        let Self {
            node,
            sockets,
            outbound,
            ..
        } = self;
        outbound.flush(sockets, now);
        for to in outbound.flusher.lost_sources() {
            node.forget_source(to);
        }
        for (to, len) in outbound.flusher.too_big() {
            node.handle_too_big(to, len, now);
        }
    }

    /// The link went down: packets on their way out are of no use when it is up again.
    pub(super) fn discard_outbound(&mut self) {
        let packets = self.outbound.discard(&mut self.metrics, &mut self.node);
        let drops = &mut self.node.counters().drops;
        drops.add(DropReason::OutboundLinkDown, packets as u64);
    }
}

fn exit_for(exit: ReaderExit) -> Exit {
    match exit {
        ReaderExit::Stopped => Exit::Stopped,
        ReaderExit::InterfaceDeleted => Exit::InterfaceDeleted,
        ReaderExit::Failed(error) => Exit::Failed(format!("cannot read from the TUN: {error}")),
    }
}
