//! WireGuard as a pure state machine: no socket, lock, clock or await.
//!
//! One [`Node`] is one interface with all its peers. A tick of the event loop drives it as follows:
//!
//! 1. [`Node::apply`] for a changed configuration (made by a [`Planner`] on another thread).
//! 2. [`Node::handle_timeout`] if [`Node::poll_timeout`] has passed.
//! 3. [`Node::handle_inbound`] for received datagrams; packets come out through [`PacketSink`].
//! 4. [`Node::poll_source_question`] until it is empty: questions about routes.
//! 5. [`Node::drain_held`], then [`Node::handle_outbound`] for packets from the TUN; datagrams come out
//!    through [`DatagramSink`].
//! 6. [`Node::poll_control`] until it is empty: handshakes, cookies and keepalives, to be sent ahead
//!    of everything in the sink.
//! 7. [`Node::poll_reply`] until it is empty: packets that the node itself sends to the TUN.
//! 8. [`Node::poll_handshake_event`] until it is empty, if [`Node::follow`] was called.
//! 9. With TURN servers by streams ([`Node::set_relays`]): [`Node::poll_relay_event`] and
//!    [`Node::poll_relay_frame`] until they are empty; [`Node::handle_relay_frames`] for what arrives.
//! 10. Sleep until [`Node::poll_timeout`].
//!
//! The caller passes the time since boot, including suspend (`CLOCK_BOOTTIME`), which never goes back. It
//! sets the wall-clock time of boot with [`Node::set_wall_clock`].
//!
//! `cargo run -p convoy-proto --example two_nodes` drives two nodes in memory.
//!
//! Deliberately left outside: sockets, the TUN, segmentation and coalescing, threads, text.
//!
//! The modules [`outbound`] and [`inbound`] are a packet's path. Handshakes and sessions are `convoy-noise`'s.

pub mod allowed_ips;
mod apply;
mod by_address;
pub mod config;
mod contact;
mod control;
mod deadlines;
mod direct;
mod followed;
mod following;
mod handshake;
mod held;
mod icmp;
pub mod inbound;
mod listing;
mod meet;
mod messages;
mod mss;
mod node;
pub mod outbound;
mod packet;
mod peer;
mod plan;
mod prefixes;
mod randomness;
mod relaying;
mod relays;
mod replies;
mod return_route;
mod seams;
mod sessions;
mod staging;
mod sticky;
mod timeout;
mod timers;

pub use control::{CONTROL_QUEUE_BYTES, ControlDatagram};
pub use convoy_noise::leave_no_trace;
pub use convoy_types::{Arrival, Datagram, Destination, counters};
pub use followed::{Followed, Outcome, PeerEvent};
pub use held::HELD_BYTES;
pub use inbound::Handled;
pub use listing::Listing;
pub use node::{LinkChange, Node};
pub use plan::{Plan, Planner};
pub use relays::{RelayEvent, RelayFrame, RelayId};
pub use seams::{DatagramSink, PacketSink, PacketSource, PaddablePacket, SinkFull};
pub use staging::Staging;
pub use sticky::SourceQuestion;

/// The device's key pair, and the bytes that encryption adds.
pub mod noise {
    pub use convoy_noise::{Identity, messages::DATA_OVERHEAD};
}

#[cfg(test)]
extern crate self as convoy_proto;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
