//! Ports that connections can be made to.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::flow::Flow;

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
    flows: VecDeque<Arc<Flow>>,
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
    pub(super) fn offer(&self, flow: Arc<Flow>) -> Result<(), Arc<Flow>> {
        let mut queue = self.queue();
        if queue.is_closed || queue.flows.len() >= BACKLOG {
            return Err(flow);
        }
        queue.flows.push_back(flow);
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Refuses connections from now on, and gives back those that nobody has accepted.
    pub(super) fn close(&self) -> VecDeque<Arc<Flow>> {
        let mut queue = self.queue();
        queue.is_closed = true;
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        std::mem::take(&mut queue.flows)
    }

    /// Returns the next connection; fails once none follows.
    pub(super) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Arc<Flow>>> {
        let mut queue = self.queue();
        if let Some(flow) = queue.flows.pop_front() {
            return Poll::Ready(Ok(flow));
        }
        if queue.is_closed {
            return Poll::Ready(Err(ErrorKind::NetworkDown.into()));
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
