//! `convoy IFACE` returns once the daemon is ready; the daemon keeps running in the background.
//!
//! Threads do not survive a fork, so the program starts itself again. The new process gets the
//! write end of a pipe as its standard input and reports there once: either the single byte
//! [`READY`] or an error message.

use std::{
    env,
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    process::{self, Command, Stdio},
};

use anyhow::{Context, bail};
use nix::{errno::Errno, unistd};

use crate::logging;

/// Set in the environment of the process that [`start`] starts.
pub const MARKER: &str = "CONVOY_BACKGROUND";

/// Reported once the daemon is ready; no error message begins with it.
pub const READY: u8 = 0;

/// Whether the process in the background writes to the caller's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Its log, if the caller requested one.
    Log,
    /// It does until it is ready, when it must have let go of it.
    UntilReady,
}

/// Starts this program again with the same arguments and waits until it is ready.
pub fn start(output: Output) -> anyhow::Result<()> {
    let program = env::current_exe().context("cannot find this program's executable")?;
    let (mut reader, writer) = io::pipe()?;
    let inherited = |wanted| match wanted {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let has_log = logging::is_requested();
    let mut command = Command::new(program);
    command
        .args(env::args_os().skip(1))
        .env(MARKER, "1")
        .stdin(writer)
        .stdout(inherited(has_log))
        .stderr(inherited(has_log || output == Output::UntilReady));
    let mut child = command.spawn().context("cannot start the daemon")?;
    // It holds the write end; the pipe closes with the daemon only if nobody else does.
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

/// Reports to the process that waits in [`start`].
#[derive(Debug)]
pub struct Parent(File);

impl Parent {
    /// Leaves the caller's session and directory if [`start`] started this process.
    pub fn detach() -> anyhow::Result<Option<Self>> {
        if env::var_os(MARKER).is_none() {
            return Ok(None);
        }
        let pipe = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        unistd::dup2_stdin(File::open("/dev/null")?)?;
        match unistd::setsid() {
            // A service manager has given this process a session of its own.
            Ok(_) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        env::set_current_dir("/")?;
        Ok(Some(Self(pipe)))
    }

    /// Lets the parent return.
    ///
    /// # Errors
    /// If the parent is gone: its caller has given up.
    pub fn ready(mut self) -> anyhow::Result<()> {
        self.0
            .write_all(&[READY])
            .context("the process that started the daemon is gone")
    }

    /// Ends this process and has the parent report the error.
    pub fn fail(mut self, error: &anyhow::Error) -> ! {
        // If the parent is gone, nobody is left to report to.
        let _ = write!(self.0, "{error:#}");
        process::exit(1)
    }
}
