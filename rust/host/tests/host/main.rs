//! The host's network in real namespaces: what `apply` makes, what `watch` restores, what `undo` leaves.
//!
//! ```text
//!  client: wg0 (TUN, nobody reads it)
//!          eth0 192.168.1.2/24, fd01::2/64 ──── veth ──── eth0 192.168.1.1/24, fd01::1/64 :router
//! ```
//! They need root, `ip` and `nft`; without them they say so and pass, or fail under `CONVOY_REQUIRE_LAB=1`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

mod crash;
mod dns;
mod kill_switch;
mod neighbors;
mod resolved;
mod routes;
mod watch;
