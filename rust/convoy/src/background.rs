//! `convoy IFACE` returns once the daemon is ready, which then goes on in the background.
//!
//! Threads do not survive a fork, so the program starts itself again. The new process finds the
//! writing end of a pipe as its standard input, and says there, once, how its start went: either
//! the one byte [`READY`], or what is wrong.

use std::{
    env,
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    process::{self, Command, Stdio},
};

use anyhow::{Context, bail};
use nix::unistd;

use crate::logging;

/// Tells a process that it was started by [`start`].
const MARKER: &str = "CONVOY_BACKGROUND";

/// What the daemon says when all is well; no error begins with it.
const READY: u8 = 0;

/// Starts this program again, with the same arguments, and waits until it is ready.
pub(crate) fn start() -> anyhow::Result<()> {
    let program = env::current_exe().context("cannot find the program's own file")?;
    let (mut reader, writer) = io::pipe()?;
    let output = || match logging::is_asked_for() {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let mut command = Command::new(program);
    command
        .args(env::args_os().skip(1))
        .env(MARKER, "1")
        .stdin(writer)
        .stdout(output())
        .stderr(output());
    let mut child = command.spawn().context("cannot start the daemon")?;
    // It holds the writing end, which has to be the daemon's alone for the pipe to end with it.
    drop(command);

    let mut outcome = Vec::new();
    let mut byte = [0];
    while reader.read(&mut byte)? > 0 {
        if byte[0] == READY {
            return Ok(());
        }
        outcome.push(byte[0]);
    }
    let status = child.wait()?;
    if outcome.is_empty() {
        bail!("the daemon ended before it was ready ({status})");
    }
    bail!("{}", String::from_utf8_lossy(&outcome));
}

/// The way back to the process that waits in [`start`].
#[derive(Debug)]
pub(crate) struct Parent(File);

impl Parent {
    /// Leaves the caller's session and directory, if this process was started by [`start`].
    pub(crate) fn detach() -> anyhow::Result<Option<Self>> {
        if env::var_os(MARKER).is_none() {
            return Ok(None);
        }
        let pipe = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        unistd::dup2_stdin(File::open("/dev/null")?)?;
        unistd::setsid()?;
        env::set_current_dir("/")?;
        Ok(Some(Self(pipe)))
    }

    /// Lets the parent return.
    ///
    /// # Errors
    /// When the parent is gone: then whoever called it has given up.
    pub(crate) fn ready(mut self) -> anyhow::Result<()> {
        self.0
            .write_all(&[READY])
            .context("the process that asked for the daemon is gone")
    }

    /// Ends this process, and lets the parent say why there will be no daemon.
    pub(crate) fn fail(mut self, error: &anyhow::Error) -> ! {
        // Without a parent there is nobody to tell.
        let _ = write!(self.0, "{error:#}");
        process::exit(1)
    }
}
