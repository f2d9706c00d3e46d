//! Networks that connections lead out of and into, and what moves bytes between two of them.
//!
//! 1. A [`Network`] opens sockets: [`Host`] in this process's namespace, an engine inside a tunnel.
//! 2. A [`Relay`](relay::Relay) moves bytes between two connections until both have ended.
//! 3. A [`Policy`](policy::Policy) decides which targets others may name, also behind the host's NAT64
//!    [`Translators`](translators::Translators); [`Shares`](shares::Shares) divide what can be held among them.
//!
//! `cargo run -p convoy-network --example relay` relays between two connections in memory.
//!
//! The engines (`convoy-namespace`, `convoy-smoltcp`), the gateway and `convoy-forward` build on it; programs call it. It knows no engine,
//! no tunnel and no file, and never starts a process or a thread.

pub mod counters;
pub mod dial;
pub mod expiry;
mod network;
pub mod occupants;
pub mod own;
pub mod peers;
pub mod policy;
pub mod relay;
pub mod shares;
pub mod translators;
pub mod waiting;

pub use network::*;
