//! `convoy IFACE` returns once the daemon is ready; the daemon keeps running in the background.
//!
//! Threads do not survive a fork, so the program starts itself again. The new process gets a socket as its standard
//! input and sends one [`Report`] there.

use std::{
    env, fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{self, Command, Stdio},
};

use anyhow::{Context, bail};
use nix::{errno::Errno, unistd};
use serde::{Deserialize, Serialize};

use crate::{
    logging,
    message::{self, Message},
};

/// Set in the environment of the process that [`start`] starts.
pub const MARKER: &str = "CONVOY_BACKGROUND";

/// Longest reason in a [`Report`], in bytes; the rest is cut off.
const MAX_REASON: usize = 64 << 10;

/// The report of a process that is starting.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// It has started.
    Ready,
    /// It ends.
    Failed {
        /// In words.
        reason: String,
    },
}

impl Message for Report {
    /// Longest report in bytes: each byte of a reason may become `\u0000`.
    const MAX_BYTES: usize = 8 * MAX_REASON;
}

impl Report {
    /// Reports this error.
    pub fn failed(error: impl fmt::Display) -> Self {
        let mut reason = format!("{error:#}");
        reason.truncate(reason.floor_char_boundary(MAX_REASON));
        Self::Failed { reason }
    }
}

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
    let (ours, theirs) = UnixStream::pair()?;
    let inherited = |wanted| match wanted {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let has_log = logging::is_requested();
    let mut command = Command::new(program);
    command
        .args(env::args_os().skip(1))
        .env(MARKER, "1")
        .stdin(OwnedFd::from(theirs))
        .stdout(inherited(has_log))
        .stderr(inherited(has_log || output == Output::UntilReady));
    let mut child = command.spawn().context("cannot start the daemon")?;
    // It holds the other end of the socket, which closes with the daemon only if nobody else does.
    drop(command);
    let report = message::receive(&ours);
    if let Ok((Report::Ready, _)) = report {
        return Ok(());
    }
    let status = child.wait()?;
    match report {
        Ok((Report::Failed { reason }, _)) => bail!("{reason}"),
        _ => bail!("the daemon ended before it was ready ({status})"),
    }
}

/// Sends the [`Report`] to the process that has started this one.
#[derive(Debug)]
pub struct Parent(UnixStream);

impl Parent {
    /// Leaves the caller's session and directory if [`start`] started this process.
    pub fn detach() -> anyhow::Result<Option<Self>> {
        if env::var_os(MARKER).is_none() {
            return Ok(None);
        }
        Self::of(io::stdin().as_fd().try_clone_to_owned()?.into()).map(Some)
    }

    /// Leaves the session and directory of the process at the other end, and standard input.
    pub fn of(socket: UnixStream) -> anyhow::Result<Self> {
        unistd::dup2_stdin(File::open("/dev/null")?)?;
        match unistd::setsid() {
            // A service manager has given this process a session of its own.
            Ok(_) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        env::set_current_dir("/")?;
        Ok(Self(socket))
    }

    /// Lets the parent return.
    ///
    /// # Errors
    /// If the parent is gone: its caller has given up.
    pub fn ready(self) -> anyhow::Result<()> {
        message::send(&self.0, &Report::Ready, &[])
            .context("the process that started the daemon is gone")
    }

    /// Ends this process and has the parent report the error.
    pub fn fail(self, error: impl fmt::Display) -> ! {
        // If the parent is gone, nobody is left to report to.
        let _ = message::send(&self.0, &Report::failed(error), &[]);
        process::exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_reason_is_cut_and_fits() {
        for letter in ["\0", "ö", "€"] {
            let report = Report::failed(letter.repeat(MAX_REASON + 1));
            let (ours, theirs) = UnixStream::pair().unwrap();
            let sent =
                std::thread::spawn(move || message::send(&ours, &report, &[]).map(|()| report));
            let (received, _) = message::receive::<Report>(&theirs).unwrap();
            assert_eq!(received, sent.join().unwrap().unwrap());
        }
    }
}
