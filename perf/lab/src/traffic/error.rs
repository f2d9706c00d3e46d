//! Why a job was not done.

use std::io;

/// Why a job was not done.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The other side of the control connection sent an unexpected message.
    #[error("unexpected message: {0}")]
    Protocol(String),
    /// The other side speaks another version.
    #[error(
        "the agent speaks protocol {theirs} (Convoy {version}), this program {ours}: install the same version on both hosts"
    )]
    Version {
        /// Their protocol.
        theirs: u32,
        /// Our protocol.
        ours: u32,
        /// Their program's version.
        version: String,
    },
    /// A job asks for more than an agent does.
    #[error("job refused: {0}")]
    Refused(&'static str),
    /// Nothing happened in the time that it should take.
    #[error("{0}: no answer in time")]
    Timeout(&'static str),
    /// The agent reports that it failed.
    #[error("{0}")]
    Agent(String),
    /// The agent's process or connection ended.
    #[error("the traffic agent ended unexpectedly")]
    Ended,
}

/// Names the step in which a system call fails.
pub(super) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, TrafficError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, TrafficError> {
        self.map_err(|error| TrafficError::Io {
            doing,
            source: error.into(),
        })
    }
}
