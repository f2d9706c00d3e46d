//! The smoltcp engine: a TCP/IP stack of this process, where namespaces or TUNs are refused.
//!
//! ```text
//!  streams, datagrams ─── write: smoltcp's buffer ──▶ packets ──┐            (in the thread that writes)
//!   of any task       ◀── read: smoltcp's buffer ◀─┐            ▼
//!                                                  │     device: a socket pair ◀──▶ the tunnel, as if it were a TUN
//!  thread "netstack" ── connection by its ends ◀───┴──── packets
//!                    ── timers, acknowledgements, a full device
//! ```
//!
//! 1. [`device_pair`] makes the device. The tunnel adopts one end; [`Stack::start`] takes the other.
//! 2. The [`Stack`] is a [`Network`]: it connects, listens, exchanges datagrams and resolves names through the tunnel.
//! 3. For a gateway, what begins a flow to an address that is not the stack's own comes out of it, and the
//!    gateway's connections and datagrams have that address.
//! 4. Dropping it ends the thread and resets nothing: all ends see that the network is down.
//!
//! Each message of the device is what a TUN with `IFF_VNET_HDR` carries: a virtio header of 10 bytes and an IP packet,
//! or a super-packet of up to 65,535 bytes. Segments leave with partial checksums. If the socket is full, connections
//! wait; datagrams and errors are discarded and counted.
//!
//! Decisions:
//!
//! - **A connection has an interface of its own**, as smoltcp walks through all sockets of one for each packet. The
//!   table of connections is ours.
//! - **Whoever writes also sends**: no thread is woken on the way out. The thread `netstack` receives, and wakes up for
//!   timers.
//! - **What is in flight, lost and sent again is decided here** (`sending`): smoltcp keeps the bytes and makes segments.
//!   Acknowledgements made here limit how much it sends, and of its retransmissions only lost bytes leave (`sender`).
//!   See `UPSTREAM.md`.
//! - **The window that is announced does not shrink**, although smoltcp rounds it down: a unit less is announced.
//! - **Listeners give each connection a socket of its own at its SYN**; of too many that are not established,
//!   the oldest of the peer that has most ends. How many of those a gateway admits is up to that.
//!
//! Features of the kernel's TCP that this one lacks: ECN, pacing, timestamps, and growth of buffers, so that a
//! connection carries at most half a MiB a round trip. Up to 32 gaps in what was received are remembered. UDP, ICMP,
//! fragments and TIME-WAIT are not smoltcp's but ours.
//!
//! Programs and the gateway call it. It never starts a process, opens a socket of the kernel other than the device's, or
//! reads a file.
//!
//! Deliberately left out: connections to the stack's own addresses, multicast, broadcast, IP options, and several
//! interfaces. A wildcard datagram socket answers from the address of its family that is nearest to the receiver.

mod arrivals;
mod bound;
mod datagrams;
mod device;
mod engine;
mod flow;
pub mod fragments;
mod half_open;
pub mod inlet;
mod link;
mod listener;
mod listening;
mod memory;
mod names;
mod path_mtus;
mod phy;
mod queue;
mod room;
mod sender;
mod sending;
mod settings;
mod shared;
mod stream;
mod table;
mod time_wait;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
};

use hickory_resolver::net::runtime::TokioHandle;

pub use convoy_packet::counters::{Dropped, Snapshot};
pub use device::device_pair;
pub use settings::{MAX_FLOWS, Settings};

use convoy_network::{Answer, Datagrams, Listener, Network, Stream, names::Names};
use datagrams::StackDatagrams;
use engine::Engine;
use inlet::Inlet;
use listener::StackListener;
use names::Inside;
use shared::Shared;
use stream::FlowStream;

/// A TCP/IP stack that runs.
#[derive(Debug)]
pub struct Stack {
    shared: Arc<Shared>,
    names: Names<Inside>,
    thread: Option<JoinHandle<()>>,
}

impl Stack {
    /// Starts a stack on its end of a [`device_pair`].
    ///
    /// # Errors
    /// `InvalidInput` for settings that name no unicast address or an MTU below 1,280; those of starting a thread.
    pub fn start(device: OwnedFd, settings: Settings) -> io::Result<Self> {
        let is_usable = |(address, _): &(IpAddr, u8)| convoy_packet::packet::is_unicast(*address);
        let are_usable = settings.addresses.iter().all(is_usable) && settings.mtu >= 1280;
        if !are_usable || settings.addresses.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let shared = Arc::new(Shared::new(device, settings)?);
        let inside = Inside {
            shared: Arc::clone(&shared),
            handle: TokioHandle::default(),
        };
        let names = Names::new(&shared.settings.names, inside)?;
        let engine = Engine::new(Arc::clone(&shared));
        let thread = thread::Builder::new().name("netstack".to_owned());
        let thread = Some(thread.spawn(move || engine.run())?);
        Ok(Self {
            shared,
            names,
            thread,
        })
    }

    /// Returns what it has carried and discarded so far.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        self.shared.counters.snapshot()
    }

    /// Leads what begins flows to addresses that are not the stack's own to a gateway; `None` if it does
    /// already.
    #[must_use]
    pub fn inlet(&self) -> Option<Inlet> {
        Inlet::open(&self.shared)
    }

    /// Connections that exist now.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.shared.table().flow_count()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported already.
            let _ = thread.join();
        }
    }
}

impl Network for Stack {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(self.names.resolve(name, port))
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async move {
            let stream = FlowStream::connect(&self.shared, to)?;
            stream.connected().await?;
            Ok(Stream::Other(Box::new(stream)))
        })
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        let owns = self.shared.owns(at.ip());
        let listening = self.shared.table().listen(at, owns);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let listening = listening?;
            Ok(Listener::Other(Box::new(StackListener {
                shared,
                listening,
            })))
        })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        let owns = self.shared.owns(at.ip());
        let bound = self.shared.table().bind(at, owns);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let bound = bound?;
            Ok(Datagrams::Other(Box::new(StackDatagrams { shared, bound })))
        })
    }
}

#[cfg(test)]
mod tests;
