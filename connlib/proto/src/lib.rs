//! WireGuard as a pure state machine: no socket, lock, clock or await.

pub mod config;
pub mod counters;
