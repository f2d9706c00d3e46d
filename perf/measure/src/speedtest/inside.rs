//! The part of the program that the speed test starts again inside a namespace.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};
use convoy_lab::traffic;

/// The hidden subcommand that the program routes to [`run_inside`].
pub const INSIDE: &str = "lab-inside";

/// Runs the traffic jobs that arrive on standard input.
///
/// # Errors
///
/// If the controller goes away.
pub fn run_inside() -> Result<()> {
    Ok(traffic::serve_child()?)
}

/// This program.
pub(super) fn program() -> Result<PathBuf> {
    std::env::current_exe().context("find this program's file")
}

/// Turns `command`, which starts this program, into a traffic agent.
pub(super) fn agent(mut command: Command) -> Command {
    command.arg(INSIDE);
    command
}
