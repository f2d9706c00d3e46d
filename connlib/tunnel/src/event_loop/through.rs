//! Steps of a tick that differ for a tunnel inside another: its datagrams go through the outer one.

use std::time::Duration;

use convoy_proto::{Node, inbound::is_handshake};
use convoy_via::Hop;

use super::{
    EventLoop,
    halves::{DATAGRAMS_AT_ONCE, HANDSHAKES_AT_ONCE, InboundHalf},
};
use crate::{adapters::ToTun, budget::Budget, outer::OuterPlan, turn::Turn};

/// Returns the state machine whose datagrams go to the sockets.
pub(super) fn outward<'a>(node: &'a mut Node, hop: &'a mut Option<Box<Hop>>) -> &'a mut Node {
    match hop {
        Some(hop) => hop.node(),
        None => node,
    }
}

impl EventLoop {
    /// The state machine whose datagrams go to the sockets.
    pub(super) fn outward(&mut self) -> &mut Node {
        outward(&mut self.node, &mut self.hop)
    }

    /// Changes the outer tunnel. Its peers are few: it takes one slice.
    pub(super) fn set_outer(&mut self, plan: OuterPlan, now: Duration) {
        if let Some(hop) = &mut self.hop {
            hop.place(&plan.addresses, plan.port);
            hop.node().apply(plan.plan, now);
        }
    }

    /// As [`EventLoop::work_off_received`], through the outer tunnel.
    pub(super) fn work_off_through(&mut self, turn: &Turn, now: Duration) -> usize {
        let Self {
            node, hop, inbound, ..
        } = self;
        let Some(hop) = hop else { return 0 };
        let mut datagrams = 0;
        inbound.is_writer_full = false;
        loop {
            datagrams += pass_on(node, hop, inbound, now);
            if !hop.is_drained() || inbound.received.is_finished() || turn.is_over() {
                return datagrams;
            }
            let mut handshakes = Budget::new(HANDSHAKES_AT_ONCE);
            let left = &mut inbound.handshakes_left;
            let next = inbound.received.datagrams().take(DATAGRAMS_AT_ONCE);
            let next = next.take_while(|next| {
                !is_handshake(next.bytes) || (handshakes.spend() && left.spend())
            });
            let handled = hop.handle_inbound(next, now);
            (0..handled.datagrams).for_each(|_| inbound.received.advance());
            datagrams += handled.datagrams;
            // The next one is a handshake message beyond the tick's budget.
            if handled.datagrams == 0 {
                return datagrams;
            }
        }
    }
}

/// Passes what the outer tunnel has opened to the inner one, as far as the writer has room and handshakes may be handled;
/// returns the number of datagrams.
pub(super) fn pass_on(
    node: &mut Node,
    hop: &mut Hop,
    inbound: &mut InboundHalf,
    now: Duration,
) -> usize {
    let mut datagrams = 0;
    while !hop.is_drained() {
        if inbound.batch.is_none() {
            inbound.batch = inbound.writer.take(now);
        }
        let left = &mut inbound.handshakes_left;
        let admits = |bytes: &[u8]| !is_handshake(bytes) || left.spend();
        let mut sink = ToTun(inbound.batch.as_mut());
        let handled = hop.deliver(node, now, &mut sink, admits);
        datagrams += handled.datagrams;
        if !handled.is_sink_full {
            break;
        }
        // The batch is full: hand it over, and go on with a new one.
        let Some(full) = inbound.batch.take() else {
            inbound.is_writer_full = true;
            inbound.writer.wake();
            break;
        };
        inbound.writer.enqueue(full);
    }
    datagrams
}
