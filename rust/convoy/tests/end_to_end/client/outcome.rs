//! A command of the client, and how it ended.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use convoy_lab::{Pid, eventually};
use nix::sys::signal::{Signal, kill};

use crate::scene::DEADLINE;

/// A command that runs; killed when dropped.
pub(crate) struct Running {
    child: Child,
    what: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    /// A pipe instead of files would stay open as long as what the command leaves in the background.
    pub(crate) fn start(mut command: Command, stdout: PathBuf, stderr: PathBuf) -> Self {
        let file = |path| Stdio::from(File::create(path).unwrap());
        command.stdin(Stdio::null());
        command.stdout(file(&stdout)).stderr(file(&stderr));
        Self {
            child: command.spawn().unwrap(),
            what: format!("{command:?}"),
            stdout,
            stderr,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns what it has written so far.
    pub(crate) fn said(&self) -> String {
        [&self.stdout, &self.stderr]
            .map(|path| fs::read_to_string(path).unwrap())
            .concat()
    }

    pub(crate) fn wait(mut self) -> Outcome {
        let status = eventually(2 * DEADLINE, || self.child.try_wait().unwrap());
        let status =
            status.unwrap_or_else(|| panic!("{} does not end: {}", self.what, self.said()));
        let [stdout, stderr] =
            [&self.stdout, &self.stderr].map(|path| fs::read_to_string(path).unwrap());
        Outcome {
            code: status.code(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    pub(crate) fn succeeds(self) -> Self {
        self.ends_with(0)
    }

    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Requires failure, and this in what is said about it.
    pub(crate) fn fails_with(self, words: &str) -> Self {
        let failed = self.ends_with(1);
        assert!(failed.stderr.contains(words), "no {words:?} in {failed:?}");
        failed
    }
}
