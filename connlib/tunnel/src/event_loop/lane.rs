//! The outbound half of one address family: its queue, and the state of its socket.

use std::time::Duration;

use convoy_gso::{Flushed, Flusher, GsoQueue, UdpSockets, udp::Family};
use convoy_proto::{ControlDatagram, Node};

#[derive(Debug)]
pub(super) struct Lane {
    family: Family,
    pub(super) queue: GsoQueue,
    /// A control datagram for which the socket had no room.
    pub(super) control: Option<ControlDatagram>,
    pub(super) sending: Sending,
    /// Since when it has been stopped.
    pub(super) stopped_at: Option<Duration>,
    /// When the socket last took something.
    pub(super) progress_at: Duration,
    /// When there was last something to send.
    pub(super) used_at: Duration,
}

/// Whether the socket of a lane takes datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sending {
    #[default]
    Open,
    /// Full: wait until it is writable.
    Full,
    /// The kernel had no buffers: try again at this time.
    RetryAt(Duration),
}

impl Lane {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            queue: GsoQueue::default(),
            control: None,
            sending: Sending::Open,
            stopped_at: None,
            progress_at: Duration::ZERO,
            used_at: Duration::ZERO,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.control.is_some() || self.sending != Sending::Open
    }

    pub(super) fn retry_at(&self) -> Option<Duration> {
        match self.sending {
            Sending::RetryAt(at) => Some(at),
            Sending::Open | Sending::Full => None,
        }
    }

    /// Drops everything; returns the number of datagrams dropped.
    pub(super) fn discard(&mut self) -> usize {
        let mut datagrams = usize::from(self.control.take().is_some());
        while let Some(batch) = self.queue.front() {
            datagrams += batch.segments();
            self.queue.pop_front();
        }
        self.sending = Sending::Open;
        self.stopped_at = None;
        datagrams
    }

    /// Sends waiting control datagrams. One that the socket refuses stays for the next tick.
    pub(super) fn send_control(
        &mut self,
        node: &mut Node,
        flusher: &mut Flusher,
        sockets: &mut UdpSockets,
        now: Duration,
    ) {
        match self.sending {
            Sending::RetryAt(at) if now < at => return,
            Sending::Full if !sockets.is_worth_sending(self.family, now) => return,
            _ => self.sending = Sending::Open,
        }
        let is_ipv4 = self.family == Family::V4;
        while let Some(control) = self.control.take().or_else(|| node.poll_control(is_ipv4)) {
            let to = control.destination;
            if control.is_cookie {
                flusher.send_once(&to, &control.datagram, sockets);
                continue;
            }
            let sent = flusher.send_now(&to, &control.datagram, sockets, now);
            self.sending = sending_after(&sent);
            if self.sending != Sending::Open {
                self.control = Some(control);
                break;
            }
        }
    }

    /// Sends the queue, oldest batch first, until the kernel takes no more.
    pub(super) fn flush(&mut self, flusher: &mut Flusher, sockets: &mut UdpSockets, now: Duration) {
        if !self.queue.is_empty() {
            self.used_at = now;
        }
        if self.sending == Sending::Open {
            let left = self.queue.left();
            self.sending = sending_after(&flusher.flush(&mut self.queue, sockets, now));
            if self.queue.left() != left {
                self.progress_at = now;
            }
        }
        let stopped_at = self.stopped_at.unwrap_or(now);
        self.stopped_at = self.is_stopped().then_some(stopped_at);
    }
}

fn sending_after(flushed: &Flushed) -> Sending {
    match flushed {
        Flushed::Done => Sending::Open,
        Flushed::Blocked(_) => Sending::Full,
        Flushed::RetryAt(at) => Sending::RetryAt(*at),
    }
}
