//! Datagrams of a stack, without a socket of smoltcp: they have no state.

pub(super) mod send;

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use nix::errno::Errno;

use super::{
    queue::{Pool, Queue},
    shared::Shared,
};
use convoy_network::{Packets, Train};
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
    /// Datagrams and their senders.
    queue: Queue<SocketAddr>,
    /// Only this one is heard.
    peer: Option<SocketAddr>,
}

impl Bound {
    pub(super) fn new(at: SocketAddr) -> Self {
        Self::with(at, None, usize::MAX, Arc::default())
    }

    /// For the datagrams of one flow, whose memory is of a pool.
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

    pub(super) fn push(&self, from: SocketAddr, datagram: &[u8]) -> Result<(), Dropped> {
        let mut state = self.state();
        if state.peer.is_some_and(|peer| peer != from) {
            return Err(Dropped::NobodyListens);
        }
        state.queue.push(from, datagram)
    }

    /// The stack has ended.
    pub(super) fn close(&self) {
        self.state().queue.close();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            .or(self.bound.state().peer)
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
        self.bound.state().peer = Some(to);
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
        self.bound.state().queue.pop(buffer)
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.bound.state().queue.poll_ready(context)
    }
}

impl Drop for StackDatagrams {
    fn drop(&mut self) {
        self.shared.table().unbind(&self.bound);
    }
}
