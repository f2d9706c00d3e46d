//! A STUN client (RFC 8489): asks servers by which addresses they see a socket, as a pure state machine.
//!
//! ```text
//!  handle_datagram ──▶ Client ──▶ poll_transmit           binding requests
//!  handle_timeout      │  ▲ └───▶ addresses               once `take_changed` says so
//!  poll_timeout ◀──────┘  └────── start, stop, set_servers, network_changed
//! ```
//!
//! The driving loop of the owner of the socket:
//! 1. [`Client::set_servers`], and [`Client::start`] when there is a use for the addresses.
//! 2. For each datagram that [`looks_like_stun`], [`Client::handle_datagram`].
//! 3. [`Client::handle_timeout`] when [`Client::poll_timeout`] has passed.
//! 4. After each call, send what [`Client::poll_transmit`] returns until it is empty; all by the one socket whose
//!    addresses are wanted.
//! 5. If [`Client::take_changed`], read [`Client::addresses`].
//! 6. [`Client::network_changed`] when local addresses or routes have changed; [`Client::stop`] when the use has ended.
//!
//! - **Silent to strangers.** It answers nothing, binding requests included. A datagram is looked into only if it has
//!   the source address and the 96 random bits of a request under way.
//! - **No amplifier.** Only servers that the caller names are sent to: [`MAX_REQUESTS_PER_MINUTE`] requests of
//!   [`REQUEST_LEN`] bytes in any minute at most, whatever arrives and whatever the caller does. Answers come here.
//! - **Retransmission** as in RFC 8489 §6.2.1: [`MAX_REQUESTS`] in all, 39.5 s, then the server rests for a minute.
//!
//! The library `stun-types` makes and parses the messages. The state machine of an interface (`convoy-proto`) calls
//! this crate. It never opens a socket, reads a clock, draws a random number, or looks up a name. Deliberately left
//! outside: TCP, TLS, credentials, alternate servers, the choice of addresses
//! to offer, and the kind of the NAT.

mod client;
mod message;
mod pace;
mod server;

pub use client::{Client, MAX_SERVERS, Transmit};
pub use message::{MAX_ANSWER, REQUEST_LEN, looks_like_stun};
pub use pace::MAX_REQUESTS_PER_MINUTE;
pub use server::MAX_REQUESTS;
