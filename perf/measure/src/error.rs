//! Why there is no measurement and no profile; where something helps, the message ends with the fix.

use std::{error::Error as StdError, io, path::PathBuf};

use convoy_lab::{LabError, Pid};

use crate::speedtest::TooLarge;

/// Why a speed test or a profile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step failed.
    #[error("{step}")]
    Step {
        /// The step, or a remark with its fix.
        step: String,
        /// The reason.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The request cannot be met.
    #[error("{0}")]
    Refused(String),
    /// The packets of a test would be fragmented.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The namespaces, a daemon in them, or the traffic.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Output that cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A program that is needed does not run.
    #[error("{program} is not installed, or not for this kernel (fix: {fix})")]
    NotInstalled {
        /// `perf` or `strace`.
        program: &'static str,
        /// The command that installs it.
        fix: String,
    },
    /// A program could not be run, or failed.
    #[error("{program} failed: {said}{hint}")]
    Failed {
        /// `perf` or `strace`, with its task.
        program: String,
        /// Its standard error, or why it could not be run.
        said: String,
        /// The fix in parentheses, or nothing.
        hint: String,
    },
    /// A daemon ended, or was not there.
    #[error("the daemon (process {0}) ended while it was profiled")]
    Ended(Pid),
    /// The directory holds files that would be mixed up with new ones.
    #[error("{} is not empty (fix: name another directory, or remove it)", .0.display())]
    NotEmpty(PathBuf),
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or the directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file that is not the output of `perf script`.
    #[error("{}, {source}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The line and its fault.
        source: TextError,
    },
    /// A tool wrote a line of unknown form.
    #[error("cannot parse a line that {program} wrote: {line}")]
    Output {
        /// `perf stat` or `strace`.
        program: &'static str,
        /// The line.
        line: String,
    },
    /// A flame graph could not be drawn.
    #[error("cannot draw a flame graph: {0}")]
    Drawing(io::Error),
}

/// Why a text is not the output of `perf script`.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct TextError {
    /// Counted from 1.
    pub line: usize,
    /// The fault.
    pub fault: String,
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// Names the step that failed.
pub(crate) trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, Error>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, Error> {
        self.map_err(|source| Error::Step {
            step: step.into(),
            source: source.into(),
        })
    }
}
