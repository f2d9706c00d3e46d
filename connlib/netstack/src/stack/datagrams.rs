//! Datagrams of a stack, without a socket of smoltcp: they have no state.

mod send;

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use nix::errno::Errno;

use super::{counters::Dropped, shared::Shared};
use crate::network::{Packets, Train};

/// Bytes, and datagrams, that wait to be received.
const QUEUE_BYTES: usize = 256 << 10;
const QUEUE_LENGTH: usize = 1024;

/// A port that datagrams can be sent to.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) at: SocketAddr,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Length and sender of each datagram.
    datagrams: VecDeque<(usize, SocketAddr)>,
    /// Only this one is heard.
    peer: Option<SocketAddr>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl Bound {
    pub(super) fn new(at: SocketAddr) -> Self {
        Self {
            at,
            queue: Mutex::default(),
        }
    }

    pub(super) fn push(&self, from: SocketAddr, datagram: &[u8]) -> Result<(), Dropped> {
        let mut queue = self.queue();
        if queue.peer.is_some_and(|peer| peer != from) {
            return Err(Dropped::NobodyListens);
        }
        let is_full = queue.datagrams.len() >= QUEUE_LENGTH
            || queue.bytes.len() + datagram.len() > QUEUE_BYTES;
        if is_full {
            return Err(Dropped::QueueFull);
        }
        queue.bytes.extend(datagram);
        queue.datagrams.push_back((datagram.len(), from));
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// The stack has ended.
    pub(super) fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket that a user holds.
#[derive(Debug)]
pub(super) struct StackDatagrams {
    pub(super) shared: Arc<Shared>,
    pub(super) bound: Arc<Bound>,
}

impl StackDatagrams {
    /// Where a datagram comes from, and where it goes to.
    fn ends(&self, to: Option<SocketAddr>) -> io::Result<(SocketAddr, SocketAddr)> {
        if self.shared.is_over() {
            return Err(ErrorKind::NetworkDown.into());
        }
        let to = to
            .or(self.bound.queue().peer)
            .ok_or(ErrorKind::NotConnected)?;
        let at = self.bound.at;
        if to.is_ipv4() != at.is_ipv4() {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let source = match at.ip().is_unspecified() {
            true => self.shared.source_for(to.ip())?,
            false => at.ip(),
        };
        Ok(((source, at.port()).into(), to))
    }
}

impl Packets for StackDatagrams {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.bound.at)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.shared.source_for(to.ip())?;
        self.bound.queue().peer = Some(to);
        Ok(())
    }

    fn try_send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        let (from, to) = self.ends(to)?;
        send::datagram(&self.shared, from, to, datagram)?;
        self.shared.counters.datagrams_out.add(1);
        Ok(datagram.len())
    }

    fn try_send_train(&self, train: &Train<'_>, to: Option<SocketAddr>) -> io::Result<usize> {
        let (from, to) = self.ends(to)?;
        send::train(&self.shared, from, to, train)?;
        let sent = train.segments() as u64;
        self.shared.counters.datagrams_out.add(sent);
        Ok(train.bytes())
    }

    fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut queue = self.bound.queue();
        let Some((length, from)) = queue.datagrams.pop_front() else {
            return Err(match queue.is_closed {
                true => ErrorKind::NetworkDown,
                false => ErrorKind::WouldBlock,
            }
            .into());
        };
        let taken = length.min(buffer.len());
        let (first, second) = queue.bytes.as_slices();
        let from_first = taken.min(first.len());
        buffer[..from_first].copy_from_slice(&first[..from_first]);
        buffer[from_first..taken].copy_from_slice(&second[..taken - from_first]);
        queue.bytes.drain(..length);
        Ok((taken, from))
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.bound.queue();
        if queue.is_closed || !queue.datagrams.is_empty() {
            return Poll::Ready(());
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for StackDatagrams {
    fn drop(&mut self) {
        self.shared.table().unbind(self.bound.at);
    }
}
