//! UDP → TUN: what one receive call a socket brings, as far as the writer has room.

use std::{io, time::Duration};

use convoy_gso::udp::Family;
use convoy_proto::inbound::is_handshake;

use super::EventLoop;
use crate::{adapters::ToTun, budget::Budget};

/// Handshake messages worked off in one go: each may cost several Diffie-Hellmans, and packets wait
/// meanwhile.
const HANDSHAKES_AT_ONCE: usize = 32;
/// Successive calls without a datagram after which a socket is left alone until it is readable.
const CALLS_IN_VAIN: u32 = 64;
/// Pause in receiving after an error that is not for want of datagrams.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

impl EventLoop {
    #[inline(never)]
    pub(super) fn receive(&mut self, now: Duration) -> bool {
        self.receive_at = self.receive_at.filter(|at| now < *at);
        let mut worked = self.work_off_received(now);
        for family in [self.first_family, self.first_family.other()] {
            // A full writer leaves datagrams in the buffers: they come first.
            let may_receive = self.received.is_finished() && self.receive_at.is_none();
            if may_receive && self.is_worth_a_call(family) {
                // The other one is first in the next tick.
                self.first_family = family.other();
                worked |= self.receive_from(family, now);
            }
        }
        worked
    }

    /// Whether a receive call may bring something.
    ///
    /// A loop that has just waited knows which sockets are readable. One that is never idle rarely
    /// asks: then a socket that was in use lately is tried in every tick.
    fn is_worth_a_call(&self, family: Family) -> bool {
        let is_asking_rarely = self.ticks_since_wait > 1;
        let is_in_use = self.calls_in_vain[family as usize] < CALLS_IN_VAIN;
        let is_tried = is_asking_rarely && is_in_use && self.sockets.has(family);
        is_tried || self.sockets.is_readable(family)
    }

    fn receive_from(&mut self, family: Family, now: Duration) -> bool {
        self.metrics.receive_calls += 1;
        match self.sockets.receive(family, &mut self.received) {
            Ok(_) => {
                self.calls_in_vain[family as usize] = 0;
                self.metrics.received(&self.received);
                self.work_off_received(now);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.calls_in_vain[family as usize] += 1;
            }
            Err(error) => {
                self.metrics.receive_failed(&error);
                self.receive_at = Some(now + RECEIVE_PAUSE);
            }
        }
        false
    }

    /// Hands received datagrams to the state machine until the writer has no room.
    fn work_off_received(&mut self, now: Duration) -> bool {
        let mut worked = false;
        let mut handshakes = Budget::new(HANDSHAKES_AT_ONCE);
        self.writer_full = false;
        while let Some(datagram) = self.received.datagram() {
            if is_handshake(datagram.bytes) && !handshakes.spend() {
                break;
            }
            if self.inbound.is_none() {
                self.inbound = self.writer.take(now);
            }
            let mut sink = ToTun(self.inbound.as_mut());
            if self.node.handle_inbound(datagram, now, &mut sink).is_ok() {
                self.received.advance();
                worked = true;
                continue;
            }
            // The batch is full: off with it, and the same datagram again.
            let Some(full) = self.inbound.take() else {
                self.writer_full = true;
                // Nothing more can join what was enqueued.
                self.writer.wake();
                break;
            };
            self.writer.enqueue(full);
        }
        worked
    }
}
