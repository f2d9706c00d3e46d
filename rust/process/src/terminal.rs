//! The caller's terminal, which hooks and warnings of `convoy up` reach until the tunnel is up.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::AsFd as _,
    process::Stdio,
};

use nix::unistd::dup2_stderr;

use crate::logging;

/// The standard error of the process that waits for this one.
#[derive(Debug)]
pub struct Terminal(File);

impl Terminal {
    /// Takes it from this process, so that nothing of the tunnel keeps it open; a log that was requested still
    /// goes there.
    pub fn take() -> io::Result<Self> {
        let terminal = io::stderr().as_fd().try_clone_to_owned()?;
        if !logging::is_requested() {
            dup2_stderr(File::options().write(true).open("/dev/null")?)?;
        }
        Ok(Self(terminal.into()))
    }

    /// A duplicate.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Writes a line; a terminal that is gone is no error.
    pub fn say(&self, line: &str) {
        let _ = writeln!(&self.0, "{line}");
    }
}

impl From<Terminal> for Stdio {
    fn from(terminal: Terminal) -> Self {
        terminal.0.into()
    }
}
