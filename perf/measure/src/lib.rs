//! Measures tunnels and profiles daemons: `convoy speedtest` and `convoy profile`.
//!
//! 1. [`speedtest::run`] measures a tunnel between two namespaces, or between two hosts.
//! 2. [`profile::run`] attaches perf and strace to a running daemon, interprets their output, and writes a
//!    report and flame graphs. A speed test does the same with both of its daemons.
//!
//! Inside its namespaces, the speed test starts the calling program again: the program routes the
//! subcommand [`speedtest::INSIDE`] to [`speedtest::run_inside`].
//!
//! Deliberately omitted: the daemon. Here it is a program like any other, known by its socket.

pub mod profile;
pub mod speedtest;
mod table;
