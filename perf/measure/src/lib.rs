//! Measures tunnels and looks into daemons: `convoy speedtest` and `convoy profile`.
//!
//! 1. [`speedtest::run`] measures a tunnel between two namespaces, or between two hosts.
//! 2. [`profile::run`] attaches perf and strace to a running daemon, reads their output together, and
//!    writes a report and flame graphs. A speed test does the same with both of its daemons.
//!
//! The speed test starts the program that called it again inside its namespaces: the program routes the
//! subcommand [`speedtest::INSIDE`] to [`speedtest::run_inside`].
//!
//! Deliberately left out: the daemon. It is a program like any other here, known by its socket.

mod error;
pub mod profile;
pub mod speedtest;
mod table;

pub use error::Error;
