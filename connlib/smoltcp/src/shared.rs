//! State that the stack's thread, its streams, listeners and datagram sockets share.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    ops::Deref,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicBool, atomic::Ordering},
};

use smoltcp::socket::tcp::State;

use super::{
    arrivals::Arrivals,
    flow::{Flow, Inner},
    link::Link,
    listening::Listening,
    settings::Settings,
    table::Table,
};
use convoy_packet::{
    counters::Dropped,
    packet::{Packet, is_unicast},
    segment::{Segment, Tuple},
};

/// The pause before a connection's turn that could not do what it was woken for, in microseconds.
const PAUSE: i64 = 1_000;

#[derive(Debug)]
pub(super) struct Shared {
    link: Link,
    /// Flows that have more to send than the device has room for; each is here once at most.
    waiting: Mutex<Vec<Arc<Flow>>>,
    /// Locked after a flow, never before one.
    table: Mutex<Table>,
    /// Where what begins flows to other addresses goes.
    pub(super) arrivals: OnceLock<Arc<Arrivals>>,
    is_over: AtomicBool,
}

impl Deref for Shared {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Shared {
    pub(super) fn new(device: OwnedFd, settings: Settings) -> io::Result<Self> {
        Ok(Self {
            link: Link::new(device, settings)?,
            waiting: Mutex::default(),
            table: Mutex::default(),
            arrivals: OnceLock::new(),
            is_over: AtomicBool::new(false),
        })
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what the device had no room for; returns the flows that have more, if there is room now.
    pub(super) fn flush(&self) -> Vec<Arc<Flow>> {
        let take = || std::mem::take(&mut *self.waiting());
        self.device.flush(&self.counters, take)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Flow>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the thread has ended, or is to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.device.ring();
    }

    /// The gateway that takes packets for this address, which is not of the stack.
    pub(super) fn gateway_to(&self, address: IpAddr) -> Result<&Arrivals, Dropped> {
        let arrivals = self.arrivals.get().filter(|_| is_unicast(address));
        arrivals.map(Arc::as_ref).ok_or(Dropped::NotOurs)
    }

    /// Begins a connection; its SYN is on its way.
    pub(super) fn connect(self: &Arc<Self>, to: SocketAddr) -> io::Result<Arc<Flow>> {
        if self.is_over() {
            return Err(ErrorKind::NetworkDown.into());
        }
        if to.port() == 0 || !is_unicast(to.ip()) {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        if self.owns(to.ip()) {
            // Nothing leads back into the stack.
            return Err(ErrorKind::HostUnreachable.into());
        }
        let source = self.source_for(to.ip())?;
        // Zones mean nothing inside.
        let remote = SocketAddr::new(to.ip(), to.port());
        let peer = self.peer_of(remote.ip());
        let (tuple, sizes) = self.table().reserve(source, remote, peer)?;
        let flow = Arc::new(Flow::new(self, tuple, sizes)?);
        let mut inner = flow.lock();
        inner.connect(tuple)?;
        inner.slot = Some(self.table().insert(&flow)?);
        self.counters.flows_opened.add(1);
        self.turn(&flow, &mut inner);
        if self.is_over() {
            self.fail(&mut inner, ErrorKind::NetworkDown);
        }
        drop(inner);
        Ok(flow)
    }

    /// Opens the connection that the other end's SYN begins, and `insert` adds; its next turn answers.
    pub(super) fn open<T>(
        self: &Arc<Self>,
        (packet, segment): (&Packet<'_>, &Segment),
        tuple: Tuple,
        opener: Arc<Listening>,
        insert: impl FnOnce(&mut Table, &Arc<Flow>) -> io::Result<(usize, T)>,
    ) -> Result<(Arc<Flow>, T), Dropped> {
        let peer = self.peer_of(tuple.remote.ip());
        let sizes = self.table().next_sizes(peer);
        let flow = Flow::new(self, tuple, sizes).map_err(|_| Dropped::TooManyFlows)?;
        let flow = Arc::new(flow);
        let mut inner = flow.lock();
        let mut table = self.table();
        let inserted = insert(&mut table, &flow);
        let (slot, inserted) = inserted.map_err(|_| Dropped::TooManyFlows)?;
        table.await_established(slot, opener);
        drop(table);
        self.counters.flows_opened.add(1);
        inner.slot = Some(slot);
        inner.is_awaited = true;
        inner.receive(self, packet, segment)?;
        drop(inner);
        Ok((flow, inserted))
    }

    /// Lets a connection send, and arranges for its next turn, or its end.
    pub(super) fn turn(self: &Arc<Self>, flow: &Arc<Flow>, inner: &mut Inner) {
        inner.judge_orphan(self.now());
        inner.send(self);
        self.offer(flow, inner);
        let Some(slot) = inner.slot else {
            return;
        };
        if inner.is_over() {
            return self.retire(slot, inner, None);
        }
        if inner.has_acknowledged_end() {
            return self.retire(slot, inner, Some(flow.tuple));
        }
        if inner.is_refused && !inner.is_waiting {
            inner.is_waiting = self.device.wait(|| self.waiting().push(Arc::clone(flow)));
        }
        let now = self.now();
        let soonest = now.total_micros() + PAUSE;
        let next = inner.next_turn(now).map(|it| it.max(soonest));
        // A turn that is too early does no harm, and finds out when the next one is.
        if let Some(next) = next
            && !inner.is_waiting
            && inner.deadline.is_none_or(|old| next < old)
        {
            let is_urgent = self.table().schedule(slot, inner.deadline, next);
            inner.deadline = Some(next);
            if is_urgent {
                self.device.ring();
            }
        }
    }

    /// Offers a connection that has been established to its listener.
    fn offer(self: &Arc<Self>, flow: &Arc<Flow>, inner: &mut Inner) {
        let is_half_open = matches!(inner.state(), State::Listen | State::SynReceived);
        let Some(slot) = inner.slot.filter(|_| inner.is_awaited && !is_half_open) else {
            return;
        };
        inner.is_awaited = false;
        let listening = self.table().establish(slot);
        let Some(listening) = listening.filter(|_| inner.state() != State::Closed) else {
            return;
        };
        if listening.offer(Arc::clone(flow)).is_err() {
            self.counters.drop(Dropped::BacklogFull);
            inner.socket().abort();
            inner.send(self);
        }
    }

    /// Lets the other ends have what was written on connections that nobody holds any more, or resets those that have
    /// received something which nobody has read.
    pub(super) fn abandon(self: &Arc<Self>, flows: impl IntoIterator<Item = Arc<Flow>>) {
        for flow in flows {
            let mut inner = flow.lock();
            inner.orphan(self.now());
            self.turn(&flow, &mut inner);
        }
    }

    /// Takes a connection out of the table. If it is in TIME-WAIT, its other end is still answered.
    pub(super) fn retire(&self, slot: usize, inner: &mut Inner, waits: Option<Tuple>) {
        let mut table = self.table();
        table.remove(slot, inner.deadline.take());
        if let Some(tuple) = waits {
            table
                .time_wait
                .add(tuple, inner.last_acknowledgement(), self.now());
        }
        inner.slot = None;
        self.counters.flows_closed.add(1);
    }

    /// Ends a connection without a word to the other end.
    pub(super) fn fail(&self, inner: &mut Inner, error: ErrorKind) {
        if let Some(slot) = inner.slot {
            inner.fail(error);
            self.retire(slot, inner, None);
        }
    }
}
