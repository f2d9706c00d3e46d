//! WireGuard daemons inside namespaces, configured over their UAPI sockets.
//!
//! Works with any program that behaves like `wireguard-go`: `PROGRAM --foreground INTERFACE`, with a
//! socket at `/var/run/wireguard/INTERFACE.sock` once it is ready.
//!
//! ```text
//!        left                                     right
//!   10.8.0.1 fd08::1  ═══════ tunnel ═══════  10.8.0.2 fd08::2
//!   10.9.0.1 fd09::1  ──────── veth ────────  10.9.0.2 fd09::2
//! ```

mod config;
mod daemon;
mod end;
mod tunnel;

pub use config::{Config, KeyPair, Peer};
pub use daemon::{Daemon, Implementation};
pub use end::{End, Identity, Underlay};
pub use tunnel::{Tunnel, TunnelOptions};
