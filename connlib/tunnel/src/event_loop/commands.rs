//! Commands and signals, handled at the start of a tick.

use std::{io, time::Duration};

use convoy_gso::{BoundSockets, UdpSockets};
use convoy_proto::leave_no_trace;

use super::EventLoop;
use crate::{clock, command::Command, error::Exit};

impl EventLoop {
    pub(super) fn run_commands(&mut self, now: Duration) -> bool {
        let mut commanded = false;
        while let Some(command) = self.requests.next_command() {
            commanded = true;
            // Some commands carry keys, in either direction.
            leave_no_trace(|| self.obey(command, now));
        }
        if let Some(signals) = self.requests.changed_signals() {
            if let Some(mtu) = signals.mtu {
                self.node.set_mtu(mtu);
            }
            if signals.routes != self.known_routes {
                self.known_routes = signals.routes;
                self.node.handle_routes_changed();
                self.outbound.flusher.forget_refusals();
                self.sockets.forget_routes();
            }
            if signals.wall_clock != self.known_wall_clock {
                self.known_wall_clock = signals.wall_clock;
                self.node.set_wall_clock(clock::wall_clock_of_boot());
            }
            if signals.stop {
                self.exit = Some(Exit::Stopped);
            }
        }
        commanded
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

    /// Does the part of a change that may fail.
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
}
