//! Values that several crates share, each defined once.
//!
//! A crate without dependencies on the workspace's others, so that the state machine depends on no socket code, and the
//! sockets on no WireGuard code.

mod datagram;

pub use datagram::{Arrival, Datagram, Destination, MAX_UDP_PAYLOAD};
