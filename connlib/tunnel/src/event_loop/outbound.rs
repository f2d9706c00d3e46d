//! TUN → UDP: intake from the reader, control datagrams, and the flush of the queue.

use std::time::Duration;

use convoy_gso::{Flusher, udp::Family};
use convoy_proto::{Node, Staging, counters::DropReason};
use convoy_tun::{OutboundBatch, Reader, ReaderExit, TryRecv};

use super::{
    EventLoop,
    lane::{Lane, Sending},
};
use crate::{
    adapters::{BatchFromTun, ToUdp},
    budget::Budget,
    error::Exit,
    metrics::Metrics,
    turn::{INTAKE, Turn},
};

/// Batches that one tick may take from the TUN reader even if receiving has taken less time.
const BATCHES_PER_TICK: usize = 4;
/// How long intake waits for a stopped socket while packets go to the other family, too. After that it goes
/// on, and packets for the stopped family are dropped once its queue is full.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long it waits for a socket that takes nothing at all, as the next packets may be for the other one.
const LONG_PATIENCE: Duration = Duration::from_secs(1);
/// How long a family counts as in use after a packet.
const IN_USE: Duration = Duration::from_secs(1);

/// Everything between the TUN reader and the sockets.
#[derive(Debug)]
pub(super) struct OutboundHalf {
    pub(super) reader: Reader,
    pub(super) flusher: Flusher,
    /// Most packets taken from a batch in one step.
    packets_per_intake: usize,
    /// The batch from the TUN that is not yet empty.
    pub(super) batch: Option<OutboundBatch>,
    /// Lanes of IPv4 and IPv6.
    pub(super) lanes: [Lane; 2],
    /// For each lane, whether intake waits while it is stopped.
    awaited: [bool; 2],
    /// How long the last tick has taken packets in and sent them.
    pub(super) took: Duration,
}

impl OutboundHalf {
    pub(super) fn new(reader: Reader, packets_per_intake: usize, segmentation: bool) -> Self {
        Self {
            reader,
            flusher: Flusher::new(segmentation),
            packets_per_intake,
            batch: None,
            lanes: Family::BOTH.map(Lane::new),
            awaited: [true; 2],
            took: Duration::ZERO,
        }
    }

    /// Whether intake now waits for a socket.
    pub(super) fn is_stopped(&self) -> bool {
        let mut lanes = self.lanes.iter().zip(self.awaited);
        lanes.any(|(lane, is_awaited)| is_awaited && lane.is_stopped())
    }

    /// Updates for which sockets intake waits: for none that has kept the other family waiting too long.
    pub(super) fn lose_patience(&mut self, node: &Node, now: Duration) {
        for n in 0..2 {
            self.awaited[n] = self.patience_ends(n, node, now).is_none_or(|at| now < at);
        }
    }

    /// The earliest time at which intake stops waiting for a socket.
    pub(super) fn next_patience_end(&self, node: &Node, now: Duration) -> Option<Duration> {
        let awaited = (0..2).filter(|n| self.awaited[*n]);
        awaited
            .filter_map(|n| self.patience_ends(n, node, now))
            .min()
    }

    fn patience_ends(&self, n: usize, node: &Node, now: Duration) -> Option<Duration> {
        let (lane, other) = (&self.lanes[n], &self.lanes[1 - n]);
        let stopped_at = lane.stopped_at?;
        if other.is_stopped() || !node.has_peers_over(n == 1) {
            return None;
        }
        match now < other.used_at + IN_USE {
            true => Some(stopped_at + PATIENCE),
            false => Some(stopped_at.max(lane.progress_at) + LONG_PATIENCE),
        }
    }

    pub(super) fn is_full(&self, family: Family) -> bool {
        self.lanes[family as usize].sending == Sending::Full
    }

    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.lanes.iter().filter_map(Lane::retry_at).min()
    }

    /// Drops everything outbound, including what the reader has read. Returns the number of packets and, if
    /// the reader has ended, why.
    fn discard(&mut self, metrics: &mut Metrics, node: &mut Node) -> (usize, Option<ReaderExit>) {
        let mut packets = 0;
        let exit = loop {
            match self.next_batch(metrics, node) {
                Ok(batch) => packets += batch.remaining(),
                Err(TryRecv::Empty) => break None,
                Err(TryRecv::Closed(exit)) => break Some(exit),
            }
        };
        self.flusher.forget_ahead();
        packets += self.lanes.iter_mut().map(Lane::discard).sum::<usize>();
        (packets, exit)
    }

    /// The queues that intake appends to.
    fn sink(&mut self) -> ToUdp<'_> {
        ToUdp::new(
            self.lanes.each_mut().map(|lane| &mut lane.queue),
            self.awaited,
        )
    }

    /// The batch that is not yet empty, or the next one.
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
}

impl EventLoop {
    #[inline(never)]
    pub(super) fn take_from_tun(&mut self, now: Duration) -> bool {
        let Self {
            node,
            outbound,
            inbound,
            metrics,
            ..
        } = self;
        outbound.took = Duration::ZERO;
        if outbound.is_stopped() {
            return false;
        }
        if !node.is_up() || self.awaits_configuration {
            self.keep_first_batch();
            return false;
        }
        // Made only if there is a packet: it zeroes 32 KiB of stack.
        let mut staging = None;
        if node.has_ready() {
            let staging = staging.get_or_insert_with(Staging::default);
            node.drain_held(now, staging, &mut outbound.sink());
        }
        // If held packets alone have filled the queue, more may be left.
        let mut worked = !outbound.sink().has_room();
        let mut exit = None;
        let turn = Turn::begin(inbound.took).until(now + INTAKE);
        let mut budget = Budget::new(BATCHES_PER_TICK);
        while outbound.sink().has_room() && (budget.spend() || turn.has_share_left()) {
            let mut batch = match outbound.next_batch(metrics, node) {
                Ok(batch) => batch,
                Err(TryRecv::Empty) => break,
                Err(TryRecv::Closed(reason)) => {
                    exit = Some(reason);
                    break;
                }
            };
            worked = true;
            let mut packets = BatchFromTun(&mut batch, outbound.packets_per_intake);
            let mut sink = outbound.sink();
            let staging = staging.get_or_insert_with(Staging::default);
            node.handle_outbound(&mut packets, now, staging, &mut sink);
            if batch.remaining() > 0 {
                outbound.batch = Some(batch);
            }
        }
        outbound.took = turn.elapsed();
        exit.into_iter().for_each(|exit| self.end(exit));
        worked
    }

    /// Keeps a batch that has arrived before the command that sets the link up, or the first configuration.
    fn keep_first_batch(&mut self) {
        match self.outbound.next_batch(&mut self.metrics, &mut self.node) {
            Ok(batch) => self.outbound.batch = Some(batch),
            Err(TryRecv::Empty) => {}
            Err(TryRecv::Closed(exit)) => self.end(exit),
        }
    }

    /// Keeps the first reason: the reader reports its own only once, and later only that it has stopped.
    fn end(&mut self, exit: ReaderExit) {
        self.exit.get_or_insert_with(|| exit_for(exit));
    }

    pub(super) fn send_control(&mut self, now: Duration) {
        let Self {
            node,
            sockets,
            outbound,
            ..
        } = self;
        for lane in &mut outbound.lanes {
            lane.send_control(node, &mut outbound.flusher, sockets, now);
        }
    }

    #[inline(never)]
    pub(super) fn flush(&mut self, now: Duration) {
        let Self {
            node,
            sockets,
            outbound,
            ..
        } = self;
        let turn = Turn::begin(Duration::ZERO);
        for lane in &mut outbound.lanes {
            lane.flush(&mut outbound.flusher, sockets, now);
        }
        outbound.took += turn.elapsed();
        for to in outbound.flusher.lost_sources() {
            node.forget_source(to);
        }
        for (to, len) in outbound.flusher.too_big() {
            node.handle_too_big(to, len, now);
        }
    }

    /// Drops outbound packets when the link goes down: they would be stale when it comes up again.
    pub(super) fn discard_outbound(&mut self) {
        let (packets, exit) = self.outbound.discard(&mut self.metrics, &mut self.node);
        exit.into_iter().for_each(|exit| self.end(exit));
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
