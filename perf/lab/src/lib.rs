//! Namespaces, veth and traffic generators for the speed test, the tests and the benches.
//!
//! ```text
//!  Lab ── Namespace "left" ──────── veth ──────── Namespace "right"
//!          holder process                          holder process
//!          own network, own /run                   own network, own /run
//! ```
//!
//! A [`Lab`] is a set of anonymous namespaces. Each is kept alive by a *holder*, a shell that only waits
//! for the program to end. When the program ends, for any reason, the holders kill every process that
//! still runs inside, and the kernel removes the interfaces with the namespaces. Nothing is named in
//! `/run`, so nothing has to be cleaned up.
//!
//! 1. [`Lab::new`] decides how to create namespaces: directly as root, otherwise in a user namespace.
//! 2. [`Lab::namespace`] and [`Lab::veth`] build the topology.
//! 3. [`Namespace::command`] starts programs inside, [`Namespace::run`] runs code inside,
//!    [`Namespace::link`] changes interfaces, addresses and routes.
//! 4. [`wireguard`] starts a WireGuard daemon inside and configures it.
//! 5. [`traffic`] generates and counts TCP, paced UDP and latency probes.
//! 6. [`loss`] makes a link lose packets.
//! 7. [`measure`] measures a tunnel between two such daemons.
//! 8. [`flood`] attacks a daemon; a [`PacketSocket`] sends and captures frames below the IP stack.
//! 9. A [`Bus`] carries D-Bus messages between a program and services that a test plays.
//!
//! It needs iproute2 (`ip`), and for packet loss and interfaces that cut batches also nftables and ethtool.
//!
//! Deliberately omitted: name resolution, and `/sys` (it shows the host's network).

mod bus;
mod child;
mod detour;
mod error;
mod eventually;
pub mod flood;
mod holder;
mod lab;
mod link;
pub mod loss;
pub mod measure;
mod namespace;
mod packet_socket;
mod require;
mod tool;
pub mod traffic;
mod turn;
pub mod wireguard;

pub use bus::Bus;
pub use detour::Detour;
pub use error::{LabError, Result};
pub use eventually::eventually;
pub use lab::Lab;
pub use link::{Link, UDP_SEGMENTATION};
pub use namespace::Namespace;
pub use nix::unistd::Pid;
pub use packet_socket::PacketSocket;
pub use require::{require_lab, require_programs, require_root_lab};
pub use turn::Turn;
