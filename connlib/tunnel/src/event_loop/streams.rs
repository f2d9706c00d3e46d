//! TUN ⇄ streams to TURN servers, where UDP is blocked. Without such servers, each step is one comparison.

use std::time::Duration;

use convoy_carrier::{Carrier, Phase};
use convoy_proto::{Node, RelayEvent, RelayId, counters::DropReason, inbound::is_handshake};
use convoy_via::Hop;

use super::{
    EventLoop,
    halves::InboundHalf,
    through::{outward, pass_on},
};
use crate::{adapters::ToTun, budget::Budget};

/// Most handshake messages of one stream per tick: packets wait meanwhile.
const HANDSHAKES_PER_STREAM: usize = 2;
/// Most control messages of one stream per tick: each may concern all peers. A busy server sends a few per minute.
const CONTROL_PER_STREAM: usize = 64;

/// Decides which frames of one stream are handled in this tick.
struct Admission {
    handshakes: Budget,
    control: Budget,
}

impl EventLoop {
    /// Reads from each stream once, as much as its buffer takes; returns whether there was anything.
    pub(super) fn receive_from_streams(&mut self, now: Duration) -> bool {
        let mut worked = false;
        for n in 0..self.outbound.streams.open.len() {
            let (id, carrier) = &mut self.outbound.streams.open[n];
            let id = *id;
            let was_opening = carrier.phase() == Phase::Opening;
            worked |= carrier.receive();
            if was_opening && carrier.phase() == Phase::Open {
                outward(&mut self.node, &mut self.hop).relay_opened(id, now);
            }
            worked |= self.work_off_frames(n, now);
        }
        worked
    }

    /// Passes frames to the state machine until the writer has no room; returns whether there were any.
    fn work_off_frames(&mut self, n: usize, now: Duration) -> bool {
        let Self {
            node,
            hop,
            outbound,
            inbound,
            ..
        } = self;
        let (id, carrier) = &mut outbound.streams.open[n];
        if let Some(hop) = hop {
            return work_off_through(*id, carrier, node, hop, inbound, now);
        }
        let mut admission = Admission::new();
        let mut worked = false;
        while carrier.has_frame() {
            if inbound.batch.is_none() {
                inbound.batch = inbound.writer.take(now);
            }
            let frames = carrier.frames();
            let frames = frames.take_while(|it| admission.admits(it));
            let sink = &mut ToTun(inbound.batch.as_mut());
            let handled = node.handle_relay_frames(*id, frames, now, sink);
            (0..handled.datagrams).for_each(|_| carrier.advance());
            worked |= handled.datagrams > 0;
            if !handled.is_sink_full {
                // What is left is beyond the budget.
                return worked || carrier.has_frame();
            }
            let Some(full) = inbound.batch.take() else {
                inbound.is_writer_full = true;
                inbound.writer.wake();
                break;
            };
            inbound.writer.enqueue(full);
        }
        worked
    }

    /// Sends what waits in the streams, reports those that have ended, then opens and closes what the state machine
    /// wants.
    pub(super) fn send_to_streams(&mut self, now: Duration) {
        let Self {
            node,
            hop,
            outbound,
            ..
        } = self;
        let node = outward(node, hop);
        let streams = &mut outbound.streams;
        while let Some(frame) = node.poll_relay_frame() {
            if streams.append_control(frame.relay, &frame.bytes).is_err() {
                let drops = &mut node.counters().drops;
                drops.add(DropReason::OutboundQueueFull, 1);
            }
        }
        if !streams.is_empty() {
            streams.flush(node, now);
            if streams.mark != self.fwmark {
                streams.close_all(node, now);
            }
        }
        streams.mark = self.fwmark;
        while let Some(event) = node.poll_relay_event() {
            match event {
                RelayEvent::Close(id) => streams.close(id, node),
                RelayEvent::Connect(id, relay) => {
                    if let Err(why) = streams.begin(id, &relay, node) {
                        node.relay_closed(id, &why, now);
                    }
                }
            }
        }
    }
}

/// As [`EventLoop::work_off_frames`], through the outer tunnel.
fn work_off_through(
    id: RelayId,
    carrier: &mut Carrier,
    node: &mut Node,
    hop: &mut Hop,
    inbound: &mut InboundHalf,
    now: Duration,
) -> bool {
    let mut worked = false;
    let mut admission = Admission::new();
    loop {
        worked |= pass_on(node, hop, inbound, now) > 0;
        if !hop.is_drained() || !carrier.has_frame() {
            return worked;
        }
        let frames = carrier.frames();
        let frames = frames.take_while(|it| admission.admits(it));
        let handled = hop.handle_relay_frames(id, frames, now);
        (0..handled.datagrams).for_each(|_| carrier.advance());
        // What is left is beyond the budget.
        if handled.datagrams == 0 {
            return true;
        }
        worked = true;
    }
}

impl Admission {
    fn new() -> Self {
        Self {
            handshakes: Budget::new(HANDSHAKES_PER_STREAM),
            control: Budget::new(CONTROL_PER_STREAM),
        }
    }

    fn admits(&mut self, frame: &[u8]) -> bool {
        let is_data = frame.first().is_some_and(|it| (0x40..=0x4F).contains(it));
        match is_data {
            true => !is_handshake(frame) || self.handshakes.spend(),
            false => self.control.spend(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_control_messages_is_handled_over_several_ticks() {
        let mut admission = Admission::new();
        let message = [0; 20];
        let admitted = (0..1_000).take_while(|_| admission.admits(&message));
        assert_eq!(admitted.count(), CONTROL_PER_STREAM);
        assert!(admission.admits(&[0x40, 0, 0, 4, 4, 0, 0, 0]), "data");
    }
}
