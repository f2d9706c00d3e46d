//! A program that runs from a directory of its own, so that all of its processes are found by what they execute.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use convoy_lab::measure::process;
use convoy_lab::{Namespace, Pid, eventually};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::programs::Started;

/// Time for the processes to end.
const END: Duration = Duration::from_secs(3);

/// A copy of a program, its file, and its processes, which are killed when dropped.
pub(super) struct Processes {
    directory: TempDir,
    program: PathBuf,
    pub(super) file: String,
    /// Absent before the start. It outlives the others: what `convoy exec` has become is another program.
    child: Option<Started>,
}

impl Processes {
    /// Copies the program, and writes `text` into `NAME.conf` beside it.
    pub(super) fn new(program: &Path, name: &str, text: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let name_of_program = program.file_name().context("it has no name")?;
        let copy = directory.path().join(name_of_program);
        fs::copy(program, &copy)?;
        let file = directory.path().join(format!("{name}.conf"));
        write_private(&file, text)?;
        Ok(Self {
            directory,
            program: copy,
            file: file.to_string_lossy().into_owned(),
            child: None,
        })
    }

    /// A command of the program in `place`.
    pub(super) fn command(&self, place: &Namespace) -> Command {
        place.command(&self.program)
    }

    /// Starts one of its [commands](Self::command).
    pub(super) fn start(&mut self, command: &mut Command) -> Result<&mut Started> {
        Ok(self.child.insert(Started::new(command)?))
    }

    /// Fails if all have ended.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(!self.pids()?.is_empty(), "it has ended");
        Ok(())
    }

    pub(super) fn pids(&self) -> Result<Vec<Pid>> {
        Ok(process::executing(self.directory.path())?)
    }

    /// Its output, for an error message.
    pub(super) fn log(&self) -> String {
        let log = self.child.as_ref().map(Started::log);
        format!("its log: {}", log.unwrap_or_default().trim_end())
    }
}

/// Writes a new file that only its owner can read.
pub(super) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())
}

impl Drop for Processes {
    fn drop(&mut self) {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let ended = eventually(END, || {
                let pids = self.pids().unwrap_or_default();
                for pid in &pids {
                    // An error means that it has just ended.
                    let _ = kill(*pid, signal);
                }
                pids.is_empty().then_some(())
            });
            if ended.is_some() {
                break;
            }
        }
    }
}
