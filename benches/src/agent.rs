//! This program as a traffic agent, which sends and receives inside a namespace.

use std::{env, ffi::OsString, io, process::Command};

use convoy_lab::Namespace;

/// The hidden argument that turns this program into a traffic agent.
pub(crate) const AGENT: &str = "traffic-agent";

/// This program as a traffic agent inside `namespace`.
pub(crate) fn agent(namespace: &Namespace) -> Command {
    let mut command = namespace.command("/proc/self/exe");
    command.arg(AGENT);
    command
}

/// This program as a traffic agent, for another one that executes it.
pub(crate) fn agent_words() -> io::Result<[OsString; 2]> {
    Ok([env::current_exe()?.into(), AGENT.into()])
}
