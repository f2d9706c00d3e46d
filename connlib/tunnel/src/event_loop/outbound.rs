//! TUN → UDP: intake from the reader, control datagrams, and the flush of the queue.

use std::time::Duration;

use convoy_proto::{Staging, counters::DropReason};
use convoy_tun::{ReaderExit, TryRecv};

use super::{EventLoop, through::outward};
use crate::{
    adapters::BatchFromTun,
    budget::Budget,
    error::Exit,
    turn::{INTAKE, Turn},
};

/// Batches that one tick may take from the TUN reader even if receiving has taken less time.
const BATCHES_PER_TICK: usize = 4;

impl EventLoop {
    #[inline(never)]
    pub(super) fn take_from_tun(&mut self, now: Duration) -> bool {
        let Self {
            node,
            hop,
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
        match hop {
            None if node.has_ready() => {
                let staging = staging.get_or_insert_with(Staging::default);
                node.drain_held(now, staging, &mut outbound.sink());
            }
            Some(hop) if hop.has_ready(node) => {
                let staging = staging.get_or_insert_with(Staging::default);
                hop.drain_held(node, now, staging, &mut outbound.sink());
            }
            _ => {}
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
            match hop {
                None => node.handle_outbound(&mut packets, now, staging, &mut sink),
                Some(hop) => hop.handle_outbound(node, &mut packets, now, staging, &mut sink),
            }
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
            hop,
            sockets,
            outbound,
            ..
        } = self;
        if let Some(hop) = hop {
            hop.send_control(node, now, &mut outbound.sink());
            hop.hear_errors(node, now);
        }
        let node = outward(node, hop);
        for lane in &mut outbound.lanes {
            lane.send_control(node, &mut outbound.flusher, sockets, now);
        }
    }

    #[inline(never)]
    pub(super) fn flush(&mut self, now: Duration) {
        let Self {
            node,
            hop,
            sockets,
            outbound,
            ..
        } = self;
        let node = outward(node, hop);
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
