//! WireGuard as a pure state machine: no socket, lock, clock or await.
//!
//! One [`Node`] is one interface with all its peers. A tick of the event loop drives it so:
//!
//! 1. [`Node::apply`] for a changed configuration (made by a [`Planner`] on another thread).
//! 2. [`Node::handle_timeout`] if [`Node::poll_timeout`] has passed.
//! 3. [`Node::handle_inbound`] for each datagram; packets come out through [`PacketSink`].
//! 4. [`Node::drain_held`], then [`Node::handle_outbound`] for each packet from the TUN;
//!    datagrams come out through [`DatagramSink`].
//! 5. [`Node::poll_source_question`] until it is empty: which route would be taken.
//! 6. [`Node::poll_reply`] until it is empty: packets for the TUN that the node itself sends.
//! 7. [`Node::poll_control`] until it is empty: handshakes, cookies and keepalives, which are to
//!    be sent ahead of everything in the sink.
//! 8. Sleep until [`Node::poll_timeout`].
//!
//! Time is given as the time since boot, suspend included (`CLOCK_BOOTTIME`), and never goes
//! back. Left outside on purpose: sockets, the TUN, segmentation and coalescing, threads, text.
//!
//! The packet's path is [`outbound`] and [`inbound`]; [`noise`] alone names boringtun.

pub mod allowed_ips;
mod apply;
pub mod config;
pub mod counters;
mod deadlines;
mod held;
mod icmp;
pub mod inbound;
mod node;
pub mod noise;
pub mod outbound;
mod packet;
mod peer;
mod places;
mod plan;
mod prefixes;
mod replies;
mod sessions;
mod sources;
mod sticky;
mod timeout;
mod timers;
mod wipe;

pub use held::HELD_BYTES;
pub use inbound::PacketSink;
pub use node::{CONTROL_QUEUE_BYTES, Control, Node, Transmit};
pub use outbound::{DatagramSink, MAX_DATAGRAM, OutboundPacket, STACK_BUFFER_BYTES};
pub use plan::{Plan, Planner};
pub use sticky::{Arrival, SourceQuestion};
pub use wipe::leave_no_trace;

#[cfg(all(feature = "mock-clock", not(debug_assertions)))]
compile_error!("with mock-clock, time stands still: it is for tests only");

#[cfg(test)]
extern crate self as convoy_proto;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

/// The sink is full; what was offered is still the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;
