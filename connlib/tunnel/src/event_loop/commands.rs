//! Commands and signals, handled at the start of a tick; what concerns all peers takes several ticks.

use std::{
    io,
    time::{Duration, SystemTime},
    vec,
};

use convoy_gso::{BoundSockets, UdpSockets};
use convoy_proto::{config::PublicKey, counters::DropReason, leave_no_trace};

use super::EventLoop;
use crate::{
    clock,
    command::{Command, Task},
    error::Exit,
    turn::Turn,
};

/// Peers whose handshakes one slice schedules; due timers then begin them.
pub(super) const HANDSHAKES_PER_SLICE: usize = 256;

impl EventLoop {
    /// Does one slice at least, whatever has held the thread up since the turn began: nothing announces the rest of a
    /// command. Returns whether there was anything to do.
    pub(super) fn run_commands(&mut self, turn: &Turn, now: Duration) -> bool {
        let mut commanded = false;
        loop {
            // Some commands carry keys, in either direction.
            let task = match self.task.take() {
                Some(task) => Some(task),
                None => match self.requests.next_command() {
                    Some(command) => leave_no_trace(|| self.begin(command, now)),
                    None => break,
                },
            };
            commanded = true;
            self.task = task.and_then(|task| leave_no_trace(|| self.go_on(task, now)));
            if !turn.has_share_left() {
                break;
            }
        }
        if let Some(signals) = self.requests.changed_signals() {
            if let Some(mtu) = signals.mtu {
                self.node.set_mtu(mtu);
                if let Some(hop) = &mut self.hop {
                    // Of both families the smaller one: no packet is padded beyond the outer tunnel's own.
                    let outer = mtu.saturating_add(convoy_via::overhead(true));
                    hop.node().set_mtu(outer);
                }
            }
            if signals.routes != self.known_routes {
                self.known_routes = signals.routes;
                self.outward().handle_routes_changed();
                self.outbound.flusher.forget_refusals();
                self.sockets.forget_routes();
            }
            if signals.wall_clock != self.known_wall_clock {
                self.known_wall_clock = signals.wall_clock;
                let boot = clock::wall_clock_of_boot();
                self.node.set_wall_clock(boot);
                self.outward().set_wall_clock(boot);
            }
            if signals.stop {
                self.exit = Some(Exit::Stopped);
            }
        }
        commanded
    }

    /// Does the first part of a command; returns what is left to do in slices.
    pub(super) fn begin(&mut self, command: Command, now: Duration) -> Option<Task> {
        match command {
            Command::Descriptors { answer } => {
                let _ = answer.send(self.sockets.descriptors());
                None
            }
            Command::Prepare {
                sockets,
                fwmark,
                done,
            } => {
                let _ = done.send(self.prepare(sockets, fwmark));
                None
            }
            Command::Apply { plan, port, done } => {
                if let Some(sockets) = self.next_sockets.take() {
                    self.use_sockets(sockets);
                }
                self.set_port(port, now);
                Some(Task::Apply { plan, done })
            }
            Command::Link { is_up, port, done } => {
                self.set_port(port, now);
                match self.next_sockets.take() {
                    Some(sockets) if is_up => self.use_sockets(sockets),
                    _ if is_up => {}
                    _ => {
                        self.use_sockets(UdpSockets::closed());
                        self.discard_outbound();
                    }
                }
                if let Some(hop) = &mut self.hop {
                    let dropped = hop.set_link(is_up, now);
                    let drops = &mut self.node.counters().drops;
                    drops.add(DropReason::OutboundLinkDown, dropped as u64);
                }
                let change = self.node.begin_link(is_up);
                Some(Task::Link { change, done })
            }
            Command::Snapshot { answer } => {
                let listing = self.node.begin_snapshot(now, SystemTime::now());
                let listing = Box::new(listing);
                Some(Task::Snapshot { listing, answer })
            }
            Command::Follow { mut peers, done } => {
                let [of_inner, of_outer] = &mut *peers;
                *of_inner = self.node.follow(std::mem::take(of_inner));
                if let Some(hop) = &mut self.hop {
                    *of_outer = hop.node().follow(std::mem::take(of_outer));
                }
                let _ = done.send(peers);
                None
            }
            Command::Outer { plan, done } => {
                self.set_outer(*plan, now);
                let _ = done.send(());
                None
            }
            Command::Directs { directs, done } => {
                self.node.set_directs(&directs, now);
                let _ = done.send(directs);
                None
            }
            Command::Relays { relays, done } => {
                self.outward().set_relays(&relays, now);
                let _ = done.send(relays);
                None
            }
            Command::Handshake { peers, done } => Some(Task::Handshake { peers, done }),
        }
    }

    /// Does the next slice of a task; returns the rest.
    pub(super) fn go_on(&mut self, mut task: Task, now: Duration) -> Option<Task> {
        let is_done = match &mut task {
            Task::Apply { plan, .. } => self.node.apply_slice(plan, now),
            Task::Link { change, .. } => self.node.link_slice(change, now),
            Task::Snapshot { listing, .. } => self.node.snapshot_slice(listing),
            Task::Handshake { peers, .. } => self.handshake_slice(peers, now),
        };
        if !is_done {
            return Some(task);
        }
        match task {
            Task::Apply { plan, done } => {
                self.awaits_configuration = false;
                let _ = done.send(plan);
            }
            Task::Link { done, .. } => {
                let _ = done.send(());
            }
            Task::Snapshot {
                mut listing,
                answer,
            } => {
                self.complete(&mut listing.snapshot);
                let _ = answer.send(listing);
            }
            Task::Handshake { peers, done } => {
                let _ = done.send(peers);
            }
        }
        None
    }

    fn handshake_slice(&mut self, peers: &mut vec::IntoIter<PublicKey>, now: Duration) -> bool {
        for peer in peers.by_ref().take(HANDSHAKES_PER_SLICE) {
            self.node.handshake_now(&peer, now);
            if let Some(hop) = &mut self.hop {
                hop.node().handshake_now(&peer, now);
            }
        }
        peers.as_slice().is_empty()
    }

    /// Does the part of a change that may fail.
    fn prepare(&mut self, sockets: Option<BoundSockets>, fwmark: u32) -> io::Result<()> {
        match sockets {
            // They have the mark already.
            Some(bound) => self.next_sockets = Some(UdpSockets::register(bound)?),
            None if fwmark != self.fwmark => {
                self.sockets.note_fwmark(fwmark);
                self.outward().forget_sources();
            }
            None => {}
        }
        self.fwmark = fwmark;
        Ok(())
    }

    fn set_port(&mut self, port: u16, now: Duration) {
        self.port = port;
        self.node.set_port(port, now);
    }

    fn use_sockets(&mut self, sockets: UdpSockets) {
        self.metrics.closing(&self.sockets);
        self.sockets = sockets;
        self.outward().forget_sources();
    }
}
