//! A tunnel inside another, without a device for the outer one.
//!
//! ```text
//!  TUN ─▶ inner Node ─▶ Wrapped (UDP over IP) ─▶ outer Node ─▶ GSO queue ─▶ first hop ─▶ second hop
//!  TUN ◀─ inner Node ◀─ Unwrapped (UDP over IP) ◀─ outer Node ◀─ UDP socket
//! ```
//!
//! A [`Hop`] is the outer tunnel: its state machine and both buffers. The event loop of the inner tunnel drives it. In
//! each tick:
//! 1. [`Hop::handle_timeout`] if [`Hop::poll_timeout`] has passed.
//! 2. [`Hop::handle_inbound`] for received datagrams, then [`Hop::deliver`] until [`Hop::is_drained`].
//! 3. [`Hop::drain_held`], then [`Hop::handle_outbound`] for packets from the TUN.
//! 4. [`Hop::send_control`], then [`Hop::hear_errors`].
//! 5. [`poll_control`](convoy_proto::Node::poll_control) and the other calls that concern sockets: of [`Hop::node`], never
//!    of the inner node.
//!
//! Decisions:
//!
//! - **Nothing of the inner tunnel leaves in the clear**: its datagrams have no other way than through the hop. Before
//!   [`Hop::place`] they are dropped.
//! - **The inner port is not the sockets' port**, so that the two ends of the way cannot be told to belong together by it.
//! - **Datagrams forbid fragmentation.** An ICMP error from inside the outer tunnel that says "too long" is believed only if
//!   it quotes a datagram that the inner node has sent, by the session's index, which only those on the way know, and that
//!   is longer than the reported MTU.
//! - **UDP checksums are written but not verified**: every datagram is authenticated, twice.
//! - **Fragments are reassembled**, since the path to the first hop may be narrower than the one to the second, but only
//!   those from the address of a peer's endpoint: no other host can fill the buffers.
//!
//! Pure: no socket, lock, clock or await. Only the event loop calls it. Deliberately absent: a third hop, and cutting
//! datagrams.

mod fragments;
#[cfg(test)]
mod fuzz;
mod hop;
mod too_big;
mod unwrapped;
mod wrapped;

pub use hop::Hop;

/// Upper bound of the buffers between the two tunnels, in bytes.
pub const HOP_BYTES: usize = wrapped::MAX_BYTES + unwrapped::MAX_BYTES + fragments::BYTES;

/// Bytes by which the inner tunnel's MTU is below the outer one's: IP and UDP headers, and those of a data message. `is_ipv4`:
/// whether the second hop has an IPv4 address.
#[must_use]
pub const fn overhead(is_ipv4: bool) -> u16 {
    const UDP_AND_MESSAGE: u16 = 8 + 32;
    match is_ipv4 {
        true => 20 + UDP_AND_MESSAGE,
        false => 40 + UDP_AND_MESSAGE,
    }
}
