//! Tunnels' status: described from a report, and shown as text or on a terminal.
//!
//! [`describe()`] makes a status of what a tunnel reports and what its configuration and the host add; [`text`] prints it
//! as `convoy status` does, [`watch`] shows it as it changes, and [`rates`] compares two looks.
//!
//! Supervisors describe themselves with it, and the client shows the result. It queries no supervisor and no tunnel: the
//! caller hands [`watch`] a function that does. It changes nothing; of the host, it reads only routes.

mod describe;
mod inside;
pub mod rates;
mod route;
pub mod text;
pub mod watch;

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use convoy_config::Interface;
use convoy_report::Condition;

pub use describe::{Known, describe};

/// The kill switch as the configuration writes it.
pub fn configured_switch(interface: &Interface) -> String {
    match &interface.kill_switch {
        Some(switch) => switch.value.to_string(),
        None => "off".to_owned(),
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

/// A line for service managers.
pub fn line(path: &Path, condition: Condition) -> String {
    let path = path.display();
    match condition {
        Condition::Up | Condition::Daemon => format!("up with {path}"),
        Condition::Paused => format!("paused: packets leave outside the tunnel ({path})"),
        Condition::WithoutSupervisor => format!("without a supervisor ({path})"),
    }
}
