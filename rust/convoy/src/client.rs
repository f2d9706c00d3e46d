//! The client: `convoy up` and the commands that concern a tunnel that is up.
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

pub(crate) mod args;
pub(crate) mod changed;
pub(crate) mod down;
pub(crate) mod follow;
mod hooks;
mod lock;
pub(crate) mod log;
mod metrics;
mod port_forward;
mod port_map;
pub(crate) mod requests;
mod save;
mod state;
pub(crate) mod status;
mod supervisor;
mod take_down;
pub(crate) mod up;
mod wg_quick;

pub(crate) use convoy_daemon::places;
pub(crate) use convoy_host::owner;
pub(crate) use convoy_process::terminal;
