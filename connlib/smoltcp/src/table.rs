//! A table: connections, listeners and datagram sockets by the packets for them, connections by their next turn.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use nix::errno::Errno;
use slab::Slab;
use smoltcp::time::Instant;

use super::{
    bound::Bound,
    flow::Flow,
    half_open::HalfOpen,
    listening::Listening,
    memory::{Shares, Sizes},
    queue::Pool,
    settings::MAX_FLOWS,
    time_wait::TimeWait,
};
use convoy_packet::{packet::is_unicast, segment::Tuple};

/// Listeners, and datagram sockets: two for each association of a forwarder's clients, and those of look-ups.
const MAX_BOUND: usize = 2 * 4_096 + 1_024;

/// Ports that are given to those who ask for any.
const FIRST_ANY_PORT: u16 = 32_768;
const ANY_PORTS: u16 = 28_232;
/// Ports that are tried before another address must be used.
const MOST_TRIES: usize = 512;

/// A map of std, as others choose its keys.
#[derive(Debug, Default)]
pub(super) struct Table {
    flows: Slab<Arc<Flow>>,
    by_tuple: HashMap<Tuple, usize>,
    /// Listeners that wait for connections to be established.
    openers: HashMap<usize, Arc<Listening>>,
    /// Without those that a gateway has admitted.
    half_open: HalfOpen,
    memory: Shares,
    /// Once a connection at most, in microseconds.
    deadlines: BTreeSet<(i64, usize)>,
    /// When the thread wakes by itself.
    pub(super) wakes_at: i64,
    pub(super) time_wait: TimeWait,
    listeners: HashMap<SocketAddr, Arc<Listening>>,
    bound: HashMap<SocketAddr, Arc<Bound>>,
    /// Flows of datagrams of a gateway.
    bound_flows: HashMap<Tuple, Arc<Bound>>,
    pool: Arc<Pool>,
}

impl Table {
    /// A free port for a connection to another end, and the sizes of its buffers.
    pub(super) fn reserve(
        &self,
        source: IpAddr,
        remote: SocketAddr,
        peer: u32,
    ) -> io::Result<(Tuple, Sizes)> {
        if self.flows.len() >= MAX_FLOWS {
            return Err(Errno::ENOBUFS.into());
        }
        let tuple = |port| Tuple {
            local: (source, port).into(),
            remote,
        };
        let is_free = |port: &u16| {
            let tuple = tuple(*port);
            !self.by_tuple.contains_key(&tuple) && !self.time_wait.has(&tuple)
        };
        let port = any_port(is_free)?;
        Ok((tuple(port), self.next_sizes(peer)))
    }

    /// Returns the sizes of the buffers of a peer's next connection.
    pub(super) fn next_sizes(&self, peer: u32) -> Sizes {
        self.memory.of_next(peer, self.half_open.count_of(peer))
    }

    /// Adds a connection; fails if there is one with the same ends, or if there are too many.
    pub(super) fn insert(&mut self, flow: &Arc<Flow>) -> io::Result<usize> {
        if self.flows.len() >= MAX_FLOWS {
            return Err(Errno::ENOBUFS.into());
        }
        match self.by_tuple.entry(flow.tuple) {
            Entry::Occupied(_) => Err(ErrorKind::AddrInUse.into()),
            Entry::Vacant(entry) => {
                self.memory.take(flow.peer, flow.sizes);
                Ok(*entry.insert(self.flows.insert(Arc::clone(flow))))
            }
        }
    }

    /// Adds a connection that the other end has begun; returns the one that makes room for it if too many are
    /// not established.
    pub(super) fn insert_half_open(
        &mut self,
        flow: &Arc<Flow>,
    ) -> io::Result<(usize, Option<Arc<Flow>>)> {
        let slot = self.insert(flow)?;
        let oldest = self.half_open.add(slot, flow.peer);
        let oldest = oldest.and_then(|slot| self.flows.get(slot).cloned());
        Ok((slot, oldest))
    }

    /// The same for one that a gateway has admitted: how many of these there are is up to that.
    pub(super) fn insert_admitted(&mut self, flow: &Arc<Flow>) -> io::Result<(usize, ())> {
        Ok((self.insert(flow)?, ()))
    }

    /// Notes the listener that a connection is offered to once it is established.
    pub(super) fn await_established(&mut self, slot: usize, opener: Arc<Listening>) {
        self.openers.insert(slot, opener);
    }

    /// Notes that a connection is established; returns the listener that waits for that.
    pub(super) fn establish(&mut self, slot: usize) -> Option<Arc<Listening>> {
        self.half_open.remove(slot);
        self.openers.remove(&slot)
    }

    pub(super) fn remove(&mut self, slot: usize, deadline: Option<i64>) {
        self.establish(slot);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        if let Some(flow) = self.flows.try_remove(slot) {
            self.by_tuple.remove(&flow.tuple);
            self.memory.give_back(flow.peer, flow.sizes);
        }
    }

    pub(super) fn find(&self, tuple: &Tuple) -> Option<Arc<Flow>> {
        let slot = self.by_tuple.get(tuple)?;
        self.flows.get(*slot).cloned()
    }

    pub(super) fn flows(&self) -> Vec<Arc<Flow>> {
        self.flows
            .iter()
            .map(|(_, flow)| Arc::clone(flow))
            .collect()
    }

    pub(super) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Moves a connection's turn from `old` to `new`; whether the thread would sleep through that.
    pub(super) fn schedule(&mut self, slot: usize, old: Option<i64>, new: i64) -> bool {
        if let Some(old) = old {
            self.deadlines.remove(&(old, slot));
        }
        self.deadlines.insert((new, slot));
        new < self.wakes_at
    }

    /// A connection whose turn it is.
    pub(super) fn pop_due(&mut self, now: i64) -> Option<Arc<Flow>> {
        let first = self.deadlines.first()?;
        if first.0 > now {
            return None;
        }
        let (_, slot) = self.deadlines.pop_first()?;
        self.flows.get(slot).cloned()
    }

    /// When something is to be done even if nothing happens; from then on, earlier turns must wake the thread.
    pub(super) fn sleep(&mut self, now: Instant) -> Option<i64> {
        let first = self.deadlines.first().map(|(at, _)| *at);
        self.wakes_at = first.unwrap_or(i64::MAX);
        first.map(|at| (at - now.total_micros()).max(0))
    }

    pub(super) fn listen(&mut self, at: SocketAddr, owns: bool) -> io::Result<Arc<Listening>> {
        let at = bind(&self.listeners, at, owns)?;
        let listening = Arc::new(Listening::new(at));
        self.listeners.insert(at, Arc::clone(&listening));
        Ok(listening)
    }

    pub(super) fn bind(&mut self, at: SocketAddr, owns: bool) -> io::Result<Arc<Bound>> {
        let at = bind(&self.bound, at, owns)?;
        let bound = Arc::new(Bound::new(at, &self.pool));
        self.bound.insert(at, Arc::clone(&bound));
        Ok(bound)
    }

    /// Receives what comes from one end for another, which need not be an address of the stack.
    pub(super) fn bind_flow(&mut self, tuple: Tuple) -> io::Result<Arc<Bound>> {
        if self.bound_flows.len() >= MAX_BOUND {
            return Err(Errno::ENOBUFS.into());
        }
        match self.bound_flows.entry(tuple) {
            Entry::Occupied(_) => Err(ErrorKind::AddrInUse.into()),
            Entry::Vacant(entry) => Ok(Arc::clone(
                entry.insert(Arc::new(Bound::flow(tuple, &self.pool))),
            )),
        }
    }

    pub(super) fn unlisten(&mut self, at: SocketAddr) {
        self.listeners.remove(&at);
    }

    pub(super) fn unbind(&mut self, bound: &Bound) {
        let local = bound.at;
        match bound.flow_with {
            Some(remote) => drop(self.bound_flows.remove(&Tuple { local, remote })),
            None => drop(self.bound.remove(&local)),
        }
    }

    pub(super) fn listener_at(&self, to: SocketAddr) -> Option<&Arc<Listening>> {
        at(&self.listeners, to)
    }

    pub(super) fn bound_at(&self, to: SocketAddr) -> Option<&Arc<Bound>> {
        at(&self.bound, to)
    }

    pub(super) fn bound_flow(&self, tuple: &Tuple) -> Option<&Arc<Bound>> {
        self.bound_flows.get(tuple)
    }

    /// Takes all listeners and datagram sockets, because the stack ends.
    pub(super) fn close(&mut self) -> (Vec<Arc<Listening>>, Vec<Arc<Bound>>) {
        let listeners = self.listeners.drain().map(|(_, it)| it);
        let bound = self.bound.drain().map(|(_, it)| it);
        let flows = self.bound_flows.drain().map(|(_, it)| it);
        (listeners.collect(), bound.chain(flows).collect())
    }
}

fn at<T>(bound: &HashMap<SocketAddr, T>, to: SocketAddr) -> Option<&T> {
    let any = SocketAddr::new(unspecified(to.is_ipv4()), to.port());
    bound.get(&to).or_else(|| bound.get(&any))
}

fn unspecified(is_ipv4: bool) -> IpAddr {
    match is_ipv4 {
        true => std::net::Ipv4Addr::UNSPECIFIED.into(),
        false => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns where to bind: a port is chosen if none was.
fn bind<T>(taken: &HashMap<SocketAddr, T>, to: SocketAddr, owns: bool) -> io::Result<SocketAddr> {
    let is_usable = to.ip().is_unspecified() || (owns && is_unicast(to.ip()));
    if !is_usable {
        return Err(Errno::EADDRNOTAVAIL.into());
    }
    if taken.len() >= MAX_BOUND {
        return Err(Errno::ENOBUFS.into());
    }
    let at = |port| SocketAddr::new(to.ip(), port);
    let is_free = |port: &u16| !taken.contains_key(&at(*port));
    let port = match to.port() {
        0 => any_port(is_free)?,
        port if is_free(&port) => port,
        _ => return Err(ErrorKind::AddrInUse.into()),
    };
    Ok(at(port))
}

/// A random free port, so that nobody can guess it.
fn any_port(is_free: impl Fn(&u16) -> bool) -> io::Result<u16> {
    let candidates = std::iter::repeat_with(|| FIRST_ANY_PORT + rand::random_range(0..ANY_PORTS));
    let port = candidates.take(MOST_TRIES).find(is_free);
    port.ok_or_else(|| Errno::EADDRNOTAVAIL.into())
}

#[cfg(test)]
mod tests {
    use std::{iter, net::Ipv4Addr};

    use super::*;

    #[test]
    fn as_many_associations_as_there_may_be_leave_sockets_to_look_ups() {
        let mut table = Table::default();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let associations = 2 * convoy_forward::Limits::default().flows;
        (0..associations).for_each(|_| drop(table.bind(any, true).unwrap()));
        assert!(table.bind(any, true).is_ok());
    }

    #[test]
    fn sockets_that_nobody_reads_hold_bounded_memory_and_each_takes_a_datagram() {
        let mut table = Table::default();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut fill = || {
            let socket = table.bind(any, true).unwrap();
            let push = || socket.push(any, 0, &[7; 1_400]).ok();
            iter::from_fn(push).count()
        };
        let held: Vec<_> = (0..1_000).map(|_| fill()).collect();
        assert!(held[0] > 100 && held.iter().all(|it| *it >= 1));
        let bytes = held.iter().sum::<usize>() * 1_400;
        assert!(bytes < 32 << 20, "{bytes}");
    }
}
