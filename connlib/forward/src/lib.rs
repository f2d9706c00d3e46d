//! Forwards connections and datagrams from listeners in one network to targets in another, by rules.
//!
//! 1. A [`Forwarder`] runs [`Rule`]s: each listens on some addresses and admits the clients that its [`Access`] lists.
//! 2. A [`Service`] says where they get: to a fixed target, or to those that clients of SOCKS5 and of HTTP's CONNECT name,
//!    after a [`Login`] if it asks for one.
//! 3. What rules may hold at once is bounded, and divided among them and their clients.
//!
//! The programs that live without root build on it. It knows no engine, no tunnel and no file: what it connects is a
//! [`Network`](convoy_network::Network), whose policy decides which targets clients may name.

mod access;
mod forwarder;
mod http_connect;
mod lingering;
mod login;
mod lookups;
mod socks;

pub use access::Access;
pub use forwarder::{Forwarder, Limits, Rule, Running, Service, StartError};
pub use login::Login;
pub use lookups::MOST_LOOKUPS;
