//! Accepts connections of a stack.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{shared::Shared, stream::FlowStream};
use convoy_network::{Accept, Stream};

/// Established connections that wait to be accepted; more are reset.
const BACKLOG: usize = 1024;

/// A listening port.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) at: SocketAddr,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    streams: VecDeque<FlowStream>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl Listening {
    pub(super) fn new(at: SocketAddr) -> Self {
        Self {
            at,
            queue: Mutex::default(),
        }
    }

    /// Adds a connection; gives it back if there is no room, or nobody who accepts.
    pub(super) fn offer(&self, stream: FlowStream) -> Result<(), FlowStream> {
        let mut queue = self.queue();
        if queue.is_closed || queue.streams.len() >= BACKLOG {
            return Err(stream);
        }
        queue.streams.push_back(stream);
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Refuses connections from now on, and gives back those that nobody has accepted.
    pub(super) fn close(&self) -> VecDeque<FlowStream> {
        let mut queue = self.queue();
        queue.is_closed = true;
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        std::mem::take(&mut queue.streams)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listener that a user holds.
#[derive(Debug)]
pub(super) struct StackListener {
    pub(super) shared: Arc<Shared>,
    pub(super) listening: Arc<Listening>,
}

impl Accept for StackListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.listening.at)
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>> {
        let mut queue = self.listening.queue();
        if let Some(stream) = queue.streams.pop_front() {
            let remote = stream.remote();
            return Poll::Ready(Ok((Stream::Other(Box::new(stream)), remote)));
        }
        if queue.is_closed {
            return Poll::Ready(Err(ErrorKind::NetworkDown.into()));
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for StackListener {
    fn drop(&mut self) {
        self.shared.table().unlisten(self.listening.at);
        drop(self.listening.close());
    }
}
