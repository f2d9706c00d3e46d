//! The client: `convoy up` and the commands for a tunnel that is up.
//!
//! ```text
//!  convoy up NAME ──background──▶ supervisor                        tunnel process
//!                                 │ Host: addresses, routes, DNS    = the daemon, as a user of its own
//!                                 │ opens the interface, restarts the tunnel
//!  convoy down, reload, status,   │
//!  events, pause, resume ──────▶ /run/convoy/NAME.control
//!                                 └── connects to /run/convoy/NAME.tunnel ──▶
//! ```
//!
//! Either process can be killed: a new supervisor takes the tunnel over, a new tunnel gets the interface that the
//! supervisor has kept. What both leave, `convoy down` or the next `convoy up` undoes.
//!
//! The program calls it, a module for each command. Here alone a supervisor changes the host, and only through
//! `convoy_host`, whose journal undoes it. It moves no packets, and reads the keys of a configuration only to hand them
//! to the tunnel.

pub mod args;
mod changed;
pub mod down;
pub mod follow;
mod given;
mod hooks;
mod lock;
pub mod log;
mod metrics;
mod outer;
mod port_forward;
mod port_map;
mod relays;
pub mod requests;
mod save;
mod state;
pub mod status;
mod supervisor;
mod take_down;
pub mod up;
mod wg_quick;
