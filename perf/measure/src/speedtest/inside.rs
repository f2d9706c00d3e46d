//! The part of the program that the speed test starts again inside a namespace.

use std::{path::PathBuf, process::Command};

use convoy_lab::traffic;

use crate::{Error, error::Step as _};

/// The hidden subcommand that the program routes to [`run_inside`].
pub const INSIDE: &str = "lab-inside";

/// Runs the traffic jobs that arrive on standard input.
///
/// # Errors
///
/// If the controller goes away.
pub fn run_inside() -> Result<(), Error> {
    Ok(traffic::serve_child()?)
}

/// This program.
pub(super) fn program() -> Result<PathBuf, Error> {
    std::env::current_exe().step("find this program's file")
}

/// Turns `command`, which starts this program, into a traffic agent.
pub(super) fn traffic(mut command: Command) -> Command {
    command.arg(INSIDE);
    command
}
