//! The client: `convoy up` and the commands that concern a tunnel that is up.
//!
//! ```text
//!  convoy up NAME ──background──▶ supervisor                        tunnel process
//!                                 │ Host: addresses, routes, DNS    = the daemon, as a user of its own
//!                                 │ opens the interface, restarts the tunnel
//!  convoy down, reload, status,   │
//!  pause, resume ──────────────▶ /run/convoy/NAME.control
//!                                 └── connects to /run/convoy/NAME.tunnel ──▶
//! ```
//!
//! Either process can be killed: a new supervisor takes the tunnel over, a new tunnel gets the interface that the
//! supervisor has kept. What both leave, `convoy down` or the next `convoy up` undoes.

mod addresses;
mod control;
mod desired;
pub(crate) mod down;
mod endpoints;
mod hooks;
mod kept;
mod lock;
mod names;
mod notify;
mod owner;
mod path_mtu;
mod places;
pub(crate) mod privileges;
pub(crate) mod requests;
mod save;
mod signals;
mod sleep;
mod state;
pub(crate) mod status;
mod supervisor;
mod take_down;
mod terminal;
pub(crate) mod tunnel;
pub(crate) mod up;
mod wg_quick;
