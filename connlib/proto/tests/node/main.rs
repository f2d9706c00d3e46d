//! A node through its public interface, with simulated time and a network in memory.

#[path = "../common/mod.rs"]
mod common;

mod aging;
mod batches;
mod contact;
mod data;
mod follow;
mod handshakes;
mod lifecycle;
mod malice;
mod mss;
mod replay;
mod slices;
mod sources;
