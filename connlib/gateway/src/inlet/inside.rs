//! The network inside a tunnel.

use std::{
    fmt, io,
    task::{Context, Poll},
};

use convoy_network::{Answer, Datagrams};
use convoy_packet::{counters::Counters, vnet::VnetHeader};

use crate::ends::Ends;

/// The network inside, as a gateway sees it.
pub(crate) trait Inside: fmt::Debug + Send + Sync {
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

    /// Returns whether packets have passed a router when they come out.
    fn is_behind_router(&self) -> bool;

    /// Sends a packet to a peer, in fragments if it is longer than the MTU, or counts that it could not be.
    fn write(&self, packet: &mut [u8]);

    /// Accepts the connection that a SYN begins, or counts that it could not be.
    fn admit(&self, syn: &[u8]);

    /// Exchanges datagrams with a peer, in the place of the flow's target.
    fn datagrams(&self, ends: Ends) -> Answer<'_, Datagrams>;
}
