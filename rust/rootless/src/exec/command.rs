//! Executes the command inside.

use std::{
    convert::Infallible, env, ffi::OsString, io, os::unix::process::CommandExt as _,
    process::Command,
};

use anyhow::Context;
use caps::CapSet;
use convoy_namespace::Spaces;
use nix::sys::prctl;

use super::families;
use crate::settings::hidden;

/// Exit status if the command was not started (env(1)).
const NOT_STARTED: u8 = 125;

/// Reason why the command was not executed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: anyhow::Error,
    pub(super) status: u8,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            error,
            status: NOT_STARTED,
        }
    }
}

/// Returns the exit status for a command that is not found, or cannot be executed (env(1)).
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The user's bus may be elsewhere than in the directory that is hidden.
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";

/// Enters the namespaces and becomes the command; returns only if that fails. The process has one thread.
pub(super) fn execute(spaces: &Spaces, words: &[OsString]) -> Result<Infallible, Failure> {
    enter(spaces)?;
    let mut words = words.iter();
    let name = words.next().context("a command is missing")?;
    let mut command = Command::new(name);
    command.args(words).env_remove(BUS);
    for variable in hidden::variables() {
        command.env_remove(variable);
    }
    let error = command.exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    Err(Failure {
        error: anyhow::Error::from(error)
            .context(format!("cannot execute {}", name.to_string_lossy())),
        status,
    })
}

fn enter(spaces: &Spaces) -> anyhow::Result<()> {
    let directory = env::current_dir().context("cannot find the working directory")?;
    spaces.enter().context("cannot enter the namespaces")?;
    env::set_current_dir(&directory)
        .with_context(|| format!("cannot enter {} inside", directory.display()))?;
    give_up_privileges().context("cannot give up privileges")?;
    families::restrict().context("cannot restrict the kinds of sockets")
}

/// Drops all capabilities, even for programs of root, and every way to regain one.
///
/// The bounding set stays: without it the kernel does not execute a program with capabilities at all, such as ping.
fn give_up_privileges() -> anyhow::Result<()> {
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set)?;
    }
    Ok(prctl::set_no_new_privs()?)
}
