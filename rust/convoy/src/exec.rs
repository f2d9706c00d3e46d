//! `convoy exec`: a command that sees only the tunnel, without root.
//!
//! ```text
//!  convoy exec ───── becomes ─────▶ COMMAND        inside: user, network and mount namespaces of its own
//!    │      ▲                        wg0 ◀─┐
//!    │      │ namespaces                   │ TUN
//!  supervisor ──▶ holder of the namespaces │
//!    └──────────▶ tunnel process ══════════╧═════ UDP ──▶ peer     in the host's network
//! ```
//!
//! The process that the caller has started becomes the command itself, so that terminal, signals and exit status need
//! no go-between. The supervisor belongs to nobody: it ends, and with it everything else, once the command has ended.
//!
//! 1. [`run`] asks the supervisor that runs, or starts one, for the namespaces ([`meeting`]).
//! 2. [`command`] enters them, gives up all privileges and executes the command.
//! 3. [`supervisor`] keeps the tunnel meanwhile; [`inside`] says what the network and the files inside are.

mod command;
mod inside;
mod meeting;
mod run_directory;
mod supervisor;

use std::{
    convert::Infallible,
    env, io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::Context;
use convoy_config::InterfaceName;
use convoy_netstack::namespace;
use nix::unistd::{ForkResult, fork, setsid};

use crate::{
    cli::{EXEC_SUPERVISOR, ExecArgs},
    client::{privileges::PROGRAM, tunnel::arguments},
    logging, process,
};
use run_directory::RunDirectory;
pub(crate) use supervisor::run as supervise;

/// The exit status if the command was not started (env(1)).
const NOT_STARTED: u8 = 125;

/// Why the command was not executed.
#[derive(Debug)]
struct Failure {
    error: anyhow::Error,
    status: u8,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            error,
            status: NOT_STARTED,
        }
    }
}

/// Becomes the command; returns only if that fails.
pub(crate) fn run(args: &ExecArgs) -> ExitCode {
    let Err(failure) = become_command(args);
    logging::fail(&failure.error);
    failure.status.into()
}

fn become_command(args: &ExecArgs) -> Result<Infallible, Failure> {
    let joined = running(&args.file)?.map(|supervisor| meeting::spaces(&supervisor));
    let spaces = match joined {
        Some(Ok(spaces)) => spaces,
        // A supervisor that is just ending makes room for another.
        Some(Err(_)) | None => meeting::spaces(&start(args)?)?,
    };
    command::execute(&spaces, &args.command)
}

/// The supervisor of a tunnel that is meant by its name and runs already.
fn running(name: &Path) -> anyhow::Result<Option<UnixStream>> {
    let name = name.to_str().and_then(|name| name.parse().ok());
    let Some(name): Option<InterfaceName> = name else {
        return Ok(None);
    };
    let path = RunDirectory::open()?.commands(&name);
    Ok(UnixStream::connect(path).ok())
}

/// Becomes the process that holds the namespaces; returns when its supervisor is gone.
pub(crate) fn hold() -> anyhow::Result<()> {
    process::name_like_the_program();
    Ok(namespace::hold()?)
}

/// Starts a supervisor.
fn start(args: &ExecArgs) -> anyhow::Result<UnixStream> {
    let file: PathBuf = std::path::absolute(convoy_config::path_of(&args.file))
        .context("cannot find the working directory")?;
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket")?;
    let output = match logging::is_requested() {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let mut command = Command::new(PROGRAM);
    command
        .arg0(env::args_os().next().unwrap_or_else(|| "convoy".into()))
        .arg(EXEC_SUPERVISOR)
        .args(arguments(&args.daemon))
        .arg("--")
        .arg(file)
        .stdin(OwnedFd::from(theirs))
        .stdout(output);
    // SAFETY: `leave` makes system calls only, as required of a forked child.
    unsafe { command.pre_exec(leave) };
    let started = command.spawn().and_then(|mut child| child.wait());
    started.context("cannot start the supervisor")?;
    Ok(ours)
}

/// Leaves the caller's session, and becomes no child of the command, which may wait for all of its children.
fn leave() -> io::Result<()> {
    // SAFETY: the process has one thread, as it was forked itself.
    if let ForkResult::Parent { .. } = unsafe { fork() }? {
        // SAFETY: it ends the process without what a forked one must not do.
        unsafe { libc::_exit(0) };
    }
    setsid()?;
    Ok(())
}
