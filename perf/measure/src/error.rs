//! Why there is no profile, with the fix in the message.

use std::{io, path::PathBuf};

/// Why a profile cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
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
        /// `perf` or `strace`, with what it was to do.
        program: String,
        /// What it wrote to its standard error, or why it could not be run.
        said: String,
        /// What may help, in parentheses.
        hint: String,
    },
    /// A daemon ended, or was not there.
    #[error("the daemon (process {pid}) ended while it was profiled")]
    Ended {
        /// The daemon's process.
        pid: i32,
    },
    /// The directory holds files that would be mixed up with new ones.
    #[error("{path} is not empty (fix: name another directory, or remove it)")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A file or directory could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file or the directory.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file that is no text of `perf script`.
    #[error("{path}, {source}")]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong with it.
        source: TextError,
    },
    /// The tools' own output was not understood.
    #[error("what {program} wrote is not understood: {line}")]
    Output {
        /// `perf stat` or `strace`.
        program: &'static str,
        /// The line.
        line: String,
    },
    /// A flame graph could not be drawn.
    #[error("no flame graph can be drawn: {0}")]
    Drawing(io::Error),
}

/// Why a text is none of `perf script`.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file could not be read.
    #[error("line {line}: {source}")]
    Unreadable {
        /// Counted from 1.
        line: usize,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Something that `perf script` does not write, at least not with the fields that are needed.
    #[error("line {line}: {problem}: {text:?}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: &'static str,
        /// The line's beginning.
        text: String,
    },
    /// The text ends where `perf script` does not end it.
    #[error("line {line}: the text ends in the middle of a sample: it is truncated")]
    Truncated {
        /// The last line, counted from 1.
        line: usize,
    },
    /// A text without a single sample.
    #[error("line {line}: the text ends without a sample: nothing ran while it was recorded")]
    Empty {
        /// The last line, counted from 1.
        line: usize,
    },
}

impl ProfileError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
