//! End-to-end tests of the real program in network namespaces: against itself, and against other
//! programs at either end.
//!
//! They need root, `wireguard-go`, `wg` and `ping`, and some need `nft`, `dnsmasq`, `strace` or `setpriv`.
//! A test that lacks something says so and passes, or fails under `CONVOY_REQUIRE_LAB=1`. Tests marked
//! `make interop` or `make interop-kernel` run only there: they take long or need what it installs.
//! Environment variables:
//!
//! - `CONVOY_TEST_PROGRAM`: the program to test instead of the one that cargo has built.
//! - `CONVOY_TEST_REFERENCE`: the program to compare with instead of `wireguard-go`.
//! - `CONVOY_TEST_WIREGUARD_GO`, `CONVOY_TEST_BORINGTUN`, `CONVOY_TEST_GOTATUN`, `CONVOY_TEST_ROSENPASS`: the
//!   programs to use instead of those in `target/peers/bin`.
//! - `CONVOY_TEST_GUEST`: the directory of the kernel and initramfs to boot instead of `target/guest`.
//! - `CONVOY_TEST_STATIC_PROGRAM`: the program to run in the guest instead of the one of `make cross`.
//! - `CONVOY_TEST_SEED`: the seed of the simulated bad network, and of the steps at which a client is killed.
//! - `CONVOY_TEST_MEGABYTES`: how much TCP carries in each direction, instead of 200.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pairing;
mod router;
mod scene;
mod star;
mod stats;
mod traffic;
mod turn_server;
mod twins;

mod abuse;
mod bad_network;
mod changes;
mod client;
mod confinement;
mod control;
mod crash;
mod drop_in;
mod environment;
mod faults;
mod forward;
mod golden;
mod hub;
mod interop;
mod kernel;
mod lifecycle;
mod link;
mod logs;
mod malice;
mod metrics;
mod mss;
mod mtu;
mod nat;
mod rekey;
mod roaming;
mod scale;
mod secrets;
mod shape;
mod sticky;
mod uapi;
mod wg_quick;
