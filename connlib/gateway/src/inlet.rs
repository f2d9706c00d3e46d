//! The way from an engine into a gateway.

mod namespace;
mod stack;

use std::{
    fmt, io,
    sync::Arc,
    task::{Context, Poll},
};

use super::ends::Ends;
use convoy_network::{Answer, Datagrams, Listener, OpenSockets, set_options};
use convoy_packet::{counters::Counters, vnet::VnetHeader};
use convoy_smoltcp::Stack;
use namespace::Tun;

/// Beginnings of peers' flows to addresses outside, and the way back.
#[derive(Debug)]
pub struct Inlet {
    pub(super) inside: Box<dyn Inside>,
    /// They accept the connections that were admitted, each at its target's address.
    pub(super) listeners: Vec<Listener>,
}

/// The network inside, as a gateway sees it.
pub(super) trait Inside: fmt::Debug + Send + Sync {
    /// Returns what was sent, and discarded.
    fn counters(&self) -> &Counters;

    /// Waits until there may be packets. Wakes the task that has called it last.
    ///
    /// # Errors
    /// If nothing follows.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The next packet that begins a flow to an address outside.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    fn read(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)>;

    /// Whether packets have passed a router when they come out.
    fn is_behind_router(&self) -> bool;

    /// Sends a packet to a peer, in fragments if it is longer than the MTU, or counts that it could not be.
    fn write(&self, packet: &mut [u8]);

    /// Accepts the connection that a SYN begins, or counts that it could not be.
    fn admit(&self, syn: &[u8]);

    /// Exchanges datagrams with a peer, in the place of the flow's target.
    fn datagrams(&self, ends: Ends) -> Answer<'_, Datagrams>;
}

impl Inlet {
    /// Takes that of a namespace, in which `sockets` are opened; packets in the tunnel have `mtu` bytes at most.
    ///
    /// # Errors
    /// If this process cannot wait for the device or the listeners.
    pub fn of_namespace(
        inlet: convoy_namespace::Inlet,
        sockets: Arc<dyn OpenSockets>,
        mtu: u16,
    ) -> io::Result<Self> {
        let listeners = inlet.listeners.into_iter().map(|given| {
            set_options(&given)?;
            let listener = tokio::net::TcpListener::from_std(given.into())?;
            Ok(Listener::Kernel(listener))
        });
        Ok(Self {
            inside: Box::new(Tun::new(inlet.device, sockets, mtu)?),
            listeners: listeners.collect::<io::Result<_>>()?,
        })
    }

    /// Takes that of a stack, which has one; `None` if it was taken.
    #[must_use]
    pub fn of_stack(stack: &Stack) -> Option<Self> {
        let inlet = stack.inlet()?;
        Some(Self {
            listeners: vec![inlet.listener()],
            inside: Box::new(inlet),
        })
    }
}
