//! Moves bytes between sockets of the host and sockets of the tunnel's inner network.
//!
//! 1. A [`Network`](network::Network) opens sockets: [`Host`](network::Host) in this process's namespace, an engine
//!    inside a tunnel. There are two engines: a [`namespace`] with the kernel's TCP, and a [`stack`] of this process.
//! 2. A [`Relay`](relay::Relay) moves bytes between two connections until both have ended.
//! 3. A [`Forwarder`](forward::Forwarder) listens in one network and connects in another, by rules: fixed targets, or
//!    those that clients of SOCKS5 and HTTP's CONNECT name.

pub mod descriptors;
pub mod namespace;
pub mod nat;
pub mod network;
pub mod relay;
pub mod stack;

mod access;
mod counters;
mod dial;
mod expiry;
pub mod forward;
mod http_connect;
mod lingering;
mod login;
mod occupants;
mod socks;
mod waiting;

pub use access::Access;
pub use convoy_types::Prefix;
pub use counters::{Refusal, Totals};
pub use dial::{InvalidTarget, Target};
pub use login::Login;
