//! The caller's terminal, which hooks and warnings of `convoy up` reach until the tunnel is up.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::AsFd as _,
    process::Stdio,
};

use nix::unistd::dup2_stderr;

use crate::{logging, printable};

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

    /// Writes a line, without what would control the terminal; one that is gone is no error.
    pub fn say(&self, line: &str) {
        let _ = writeln!(&self.0, "{}", printable(line));
    }
}

impl From<Terminal> for Stdio {
    fn from(terminal: Terminal) -> Self {
        terminal.0.into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};

    use super::*;

    #[test]
    fn a_warning_that_quotes_others_does_not_control_the_terminal() {
        let mut file = tempfile::tempfile().unwrap();
        let terminal = Terminal(file.try_clone().unwrap());
        terminal.say("nft said: \u{1b}[2J\u{1b}]0;owned\u{7}");
        file.rewind().unwrap();
        let mut said = String::new();
        file.read_to_string(&mut said).unwrap();
        assert_eq!(said, "nft said: ?[2J?]0;owned?\n");
    }
}
