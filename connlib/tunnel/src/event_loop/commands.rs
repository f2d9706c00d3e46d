//! What the user changes, between two packets.

use std::{io, time::Duration};

use convoy_gso::{BoundSockets, UdpSockets};
use convoy_proto::{counters::DropReason, leave_no_trace};

use super::EventLoop;
use crate::{command::Command, handle::Exit};

impl EventLoop {
    pub(super) fn run_commands(&mut self, now: Duration) -> bool {
        let mut commanded = false;
        while let Ok(command) = self.commands.try_recv() {
            commanded = true;
            self.run_command(command, now);
        }
        if self.signals.has_changed().unwrap_or(true) {
            let signals = *self.signals.borrow_and_update();
            if let Some(mtu) = signals.mtu {
                self.node.set_mtu(mtu);
            }
            if signals.routes != self.known_routes {
                self.known_routes = signals.routes;
                self.node.handle_routes_changed();
                self.flusher.forget_refusals();
            }
            if signals.stop || self.signals.has_changed().is_err() {
                self.exit = Some(Exit::Stopped);
            }
        }
        commanded
    }

    pub(super) fn run_command(&mut self, command: Command, now: Duration) {
        // Some bring keys, some ask for them.
        leave_no_trace(|| self.obey(command, now));
    }

    fn obey(&mut self, command: Command, now: Duration) {
        match command {
            Command::Prepare {
                sockets,
                fwmark,
                done,
            } => {
                let _ = done.send(self.prepare(sockets, fwmark));
            }
            Command::Apply { plan, port, done } => {
                if let Some(sockets) = self.next_sockets.take() {
                    self.use_sockets(sockets);
                }
                self.port = port;
                self.node.apply(*plan, now);
                let _ = done.send(());
            }
            Command::Link { is_up, port, done } => {
                self.port = port;
                match self.next_sockets.take() {
                    Some(sockets) if is_up => self.use_sockets(sockets),
                    _ if is_up => {}
                    _ => {
                        self.use_sockets(UdpSockets::closed());
                        self.discard_outbound();
                    }
                }
                self.node.set_link(is_up, now);
                let _ = done.send(());
            }
            Command::Snapshot { answer } => {
                let _ = answer.send(Box::new(self.snapshot(now)));
            }
        }
    }

    /// Everything about a change that may fail.
    fn prepare(&mut self, sockets: Option<BoundSockets>, fwmark: u32) -> io::Result<()> {
        match sockets {
            // They have the mark already.
            Some(bound) => self.next_sockets = Some(UdpSockets::register(bound)?),
            None if fwmark != self.fwmark => {
                self.sockets.set_fwmark(fwmark)?;
                self.node.forget_sources();
            }
            None => {}
        }
        self.fwmark = fwmark;
        Ok(())
    }

    fn use_sockets(&mut self, sockets: UdpSockets) {
        self.metrics.closing(&self.sockets);
        self.sockets = sockets;
        self.node.forget_sources();
    }

    /// The link went down: what was on its way out is of no use when it is up again.
    fn discard_outbound(&mut self) {
        let mut packets = 0;
        while let Some(batch) = self.next_outbound() {
            packets += batch.remaining();
        }
        while let Some(batch) = self.queue.front() {
            packets += batch.segments();
            self.queue.pop_front();
        }
        let drops = &mut self.node.counters().drops;
        drops.add(DropReason::OutboundLinkDown, packets as u64);
        (self.control, self.blocked, self.retry_at) = (None, None, None);
        self.flusher.forget_ahead();
    }
}
