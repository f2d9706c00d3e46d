//! Ports that datagrams can be sent to.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use super::queue::{Pool, Queue};
use convoy_network::Received;
use convoy_packet::{counters::Dropped, segment::Tuple};

/// Bytes of memory that an idle flow keeps, of which there may be thousands.
const KEPT_OF_FLOW: usize = 16 << 10;

/// A port that datagrams can be sent to.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) at: SocketAddr,
    /// If there is one, only its datagrams arrive here.
    pub(super) flow_with: Option<SocketAddr>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Datagrams, their senders and traffic classes.
    queue: Queue<(SocketAddr, u8)>,
    /// Only this one is heard.
    peer: Option<SocketAddr>,
}

impl Bound {
    /// For whoever sends to it; its memory is of a pool.
    pub(super) fn new(at: SocketAddr, pool: &Arc<Pool>) -> Self {
        Self::with(at, None, usize::MAX, Arc::clone(pool))
    }

    /// For the datagrams of one flow.
    pub(super) fn flow(Tuple { local, remote }: Tuple, pool: &Arc<Pool>) -> Self {
        Self::with(local, Some(remote), KEPT_OF_FLOW, Arc::clone(pool))
    }

    fn with(at: SocketAddr, peer: Option<SocketAddr>, kept: usize, pool: Arc<Pool>) -> Self {
        let queue = Queue::new(kept, pool);
        Self {
            at,
            flow_with: peer,
            state: Mutex::new(State { queue, peer }),
        }
    }

    pub(super) fn push(&self, from: SocketAddr, class: u8, datagram: &[u8]) -> Result<(), Dropped> {
        let mut state = self.state();
        if state.peer.is_some_and(|peer| peer != from) {
            return Err(Dropped::NobodyListens);
        }
        state.queue.push((from, class), datagram)
    }

    /// Hears only this end from now on.
    pub(super) fn connect(&self, peer: SocketAddr) {
        self.state().peer = Some(peer);
    }

    /// Returns the only end that is heard.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.state().peer
    }

    pub(super) fn pop(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let (length, (from, class)) = self.state().queue.pop(buffer)?;
        Ok(Received {
            length,
            from,
            class,
        })
    }

    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.state().queue.poll_ready(context)
    }

    /// The stack has ended.
    pub(super) fn close(&self) {
        self.state().queue.close();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
