//! A TURN client (RFC 8656): one allocation, its channels, and ChannelData.
//!
//! ```text
//!  handle_message, handle_connected, handle_closed ──▶ Client ──▶ poll_transmit  messages to the server
//!  handle_timeout ◀── poll_timeout                       │──────▶ poll_event     connect, ready, failed
//!                                                        └──────▶ channel, peer  numbers of ChannelData
//! ```
//!
//! The driving loop of whoever owns the socket:
//! 1. [`Client::new`], then [`Client::set_peers`] with every address that may be sent to.
//! 2. A datagram, or a frame of the stream ([`frame_len`]), from the server: [`parse`] says whether it is
//!    ChannelData. If it is, [`Client::peer`] names the sender; else [`Client::handle_message`].
//! 3. A datagram to a peer: with a [`Client::channel`], write [`header`] ahead of it; else [`Client::hold`] it
//!    and send what [`Client::poll_held`] gives back later.
//! 4. After each call, send everything from [`Client::poll_transmit`], then wait until [`Client::poll_timeout`].
//!
//! The library `turn-client-proto` makes and checks the messages of an allocation. It draws transaction
//! identifiers itself; all else is pure: no socket, no clock. `convoy-proto`
//! drives it. It never sends to an address that [`Client::set_peers`] did not name. This crate adds the rest: framing,
//! channels, bounds, pauses after failures, the release of an allocation that an earlier process has left, and the watch
//! for a server that has gone. [`parse_indication`] reads what a peer without a channel sends.
//!
//! An allocation has an address of each family that peers have (RFC 8656 §7.1), or of those that the server does not
//! refuse. A peer of a further family costs a new allocation, once.
//!
//! Deliberately absent: Send indications, TCP allocations (RFC 6062), DTLS.

mod bindings;
mod channel;
mod client;
mod control;
mod credentials;
mod error;
mod families;
mod held;
mod indication;
mod refresh;
mod request;
mod server;
mod watch;

pub use channel::{ChannelNumber, HEADER_LEN, frame_len, header, padding, parse};
pub use client::{Client, Event, Phase};
pub use credentials::Credentials;
pub use error::{Failure, InvalidCredentials, NotTurn, TooManyPeers};
pub use families::Addresses;
pub use indication::parse_indication;
pub use server::{Server, Transport};

/// Most peers that an allocation serves, each by its own channel.
pub const MAX_PEERS: usize = 64;
