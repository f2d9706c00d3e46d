//! The real program in namespaces: against itself, and against other programs from either side.
//!
//! Root is needed, and `wireguard-go`, `wg`, `ping`, and for some `strace` or `setpriv`; without, the
//! tests say so and pass, or fail under `CONVOY_REQUIRE_LAB=1`. Those that `make interop` runs are
//! ignored otherwise: they need what it installs, or take long. Further switches:
//!
//! - `CONVOY_TEST_PROGRAM`: the program to test, instead of the one that cargo has built.
//! - `CONVOY_TEST_REFERENCE`: the program to compare with, instead of `wireguard-go`.
//! - `CONVOY_TEST_WIREGUARD_GO`, `CONVOY_TEST_BORINGTUN`, `CONVOY_TEST_GOTATUN`: the peers,
//!   instead of those in `target/peers/bin`.
//! - `CONVOY_TEST_SEED`: what a bad network does follows from it.
//! - `CONVOY_TEST_MEGABYTES`: how much TCP carries in one direction, instead of 200.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pairing;
mod scene;
mod star;
mod stats;
mod traffic;
mod twins;

mod abuse;
mod bad_network;
mod changes;
mod control;
mod crash;
mod drop_in;
mod environment;
mod faults;
mod golden;
mod hub;
mod interop;
mod lifecycle;
mod link;
mod malice;
mod mtu;
mod nat;
mod rekey;
mod roaming;
mod scale;
mod secrets;
mod sticky;
mod uapi;
mod wg_quick;
