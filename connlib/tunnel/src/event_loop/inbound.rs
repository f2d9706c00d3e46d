//! UDP → TUN: receives while the writer has room, and hands batches to it.

use std::{io, time::Duration};

use convoy_gso::udp::Family;
use convoy_proto::{counters::DropReason, inbound::is_handshake};

use super::{
    EventLoop,
    halves::{DATAGRAMS_AT_ONCE, HANDSHAKES_AT_ONCE},
};
use crate::{
    adapters::ToTun,
    budget::Budget,
    turn::{RECEIVING, Turn},
};

/// Most handshake messages per tick: those that cost little, for example because they get a cookie reply,
/// have answers that the tick must also send.
const HANDSHAKES_PER_TICK: usize = 32;
/// Pause in receiving after an error other than `EAGAIN`.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

impl EventLoop {
    #[inline(never)]
    pub(super) fn receive(&mut self, now: Duration) -> bool {
        self.inbound.retry_at = self.inbound.retry_at.filter(|at| now < *at);
        self.inbound.handshakes_left = Budget::new(HANDSHAKES_PER_TICK);
        let turn = Turn::begin(self.outbound.took).until(now + RECEIVING);
        let mut datagrams = self.work_off_received(&turn, now);
        loop {
            let (count, may_be_more) = self.receive_once(&turn, now);
            datagrams += count;
            if !may_be_more || !turn.has_share_left() {
                break;
            }
        }
        self.inbound.took = turn.elapsed();
        self.outbound.reader.observe(datagrams, self.busy_ticks);
        datagrams > 0
    }

    /// Receives from each socket once. Returns the number of datagrams, and whether more may be waiting.
    fn receive_once(&mut self, turn: &Turn, now: Duration) -> (usize, bool) {
        // The first tick after a wait is not busy: often the next one finds nothing.
        let is_busy = self.busy_ticks > 1;
        let (mut datagrams, mut may_be_more) = (0, false);
        for family in [self.inbound.first_family, self.inbound.first_family.other()] {
            // Datagrams that a full writer or the end of a turn has left in the buffers come first.
            let is_drained = self.hop.as_ref().is_none_or(|hop| hop.is_drained());
            let may_receive =
                is_drained && self.inbound.received.is_finished() && self.inbound.can_receive();
            if may_receive && self.sockets.is_worth_receiving(family, is_busy, now) {
                // Serve the other family first the next time.
                self.inbound.first_family = family.other();
                let received = self.receive_from(family, turn, now);
                datagrams += received;
                may_be_more |= received > 0 && self.inbound.received.are_full();
            }
        }
        (datagrams, may_be_more)
    }

    fn receive_from(&mut self, family: Family, turn: &Turn, now: Duration) -> usize {
        self.metrics.receive_calls += 1;
        let received = &mut self.inbound.received;
        match self.sockets.receive(family, received) {
            Ok(_) => {
                self.metrics.received(received);
                return self.work_off_received(turn, now);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                self.metrics.receive_failed(&error);
                self.inbound.retry_at = Some(now + RECEIVE_PAUSE);
            }
        }
        0
    }

    /// Passes received datagrams to the state machine until the writer has no room or the turn is over;
    /// returns their number.
    fn work_off_received(&mut self, turn: &Turn, now: Duration) -> usize {
        if self.hop.is_some() {
            return self.work_off_through(turn, now);
        }
        let Self { node, inbound, .. } = self;
        let mut datagrams = 0;
        inbound.is_writer_full = false;
        loop {
            if inbound.batch.is_none() {
                inbound.batch = inbound.writer.take(now);
            }
            let mut handshakes = Budget::new(HANDSHAKES_AT_ONCE);
            let left = &mut inbound.handshakes_left;
            let next = inbound.received.datagrams().take(DATAGRAMS_AT_ONCE);
            let next = next.take_while(|next| {
                !is_handshake(next.bytes) || (handshakes.spend() && left.spend())
            });
            let handled = node.handle_inbound(next, now, &mut ToTun(inbound.batch.as_mut()));
            (0..handled.datagrams).for_each(|_| inbound.received.advance());
            datagrams += handled.datagrams;
            if !handled.is_sink_full {
                // Nothing was handled: the next one is a handshake message beyond the tick's budget.
                let is_stopped = handled.datagrams == 0 || turn.is_over();
                if inbound.received.is_finished() || is_stopped {
                    return datagrams;
                }
                continue;
            }
            // The batch is full: hand it over, and retry the same datagram with a new one.
            let Some(full) = inbound.batch.take() else {
                inbound.is_writer_full = true;
                // Nothing more will be enqueued: wake the thread now.
                inbound.writer.wake();
                return datagrams;
            };
            inbound.writer.enqueue(full);
        }
    }

    /// Hands the tick's packets to the writer, including our own ICMP errors.
    pub(super) fn deliver(&mut self, now: Duration) {
        let Self { node, inbound, .. } = self;
        while let Some(reply) = node.poll_reply() {
            // If the writer is full the error is lost, as ICMP errors may be.
            if !inbound.put_reply(&reply, now) {
                let drops = &mut node.counters().drops;
                drops.add(DropReason::InboundReplyLost, 1);
            }
        }
        if let Some(batch) = inbound.batch.take_if(|batch| !batch.is_empty()) {
            if self.outbound.reader.is_sparse(batch.packets()) {
                self.metrics.sparse_inbound += batch.packets() as u64;
                inbound.writer.write(batch);
            } else {
                inbound.writer.enqueue(batch);
            }
        }
        inbound.writer.wake();
    }
}
