//! Down: nothing is left to do.

use std::fmt;

/// A tunnel that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// Why it went down.
    pub ending: Ending,
    /// Failures on the way, in order.
    pub failures: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Why a tunnel goes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A client wanted it.
    Requested,
    /// A signal wanted it.
    Signal(&'static str),
    /// The last command inside has ended.
    Delivered,
    /// The tunnel's process has ended in an orderly way.
    Tunnel(String),
    /// Somebody has deleted the interface.
    InterfaceDeleted,
    /// Nothing more can be done; the kill switch stays closed for the next start of the supervisor.
    Failed(String),
    /// It was still coming up when this came.
    Interrupted(Interruption),
    /// A step on the way up failed.
    NotUp {
        /// Whether the kill switch was closed before, and stays so.
        keeps_kill_switch: bool,
    },
    /// A step on the way up failed; the tunnel that ran before continues without a supervisor.
    LeftRunning,
}

/// Interruption of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// A client wanted the tunnel down.
    Client,
    /// A signal.
    Signal(&'static str),
    /// The end of the command that wanted the tunnel.
    CallerLeft,
}

impl Down {
    /// Returns the notes or, if something failed, all that failed and the notes.
    ///
    /// # Errors
    /// The failures, a line each.
    pub fn outcome(self) -> Result<Vec<String>, String> {
        match self.failures.is_empty() {
            true => Ok(self.notes),
            false => Err([self.failures, self.notes].concat().join("\n")),
        }
    }
}

impl Ending {
    /// Returns whether the tunnel was still coming up.
    #[must_use]
    pub fn is_of_start(&self) -> bool {
        matches!(
            self,
            Self::Interrupted(_) | Self::NotUp { .. } | Self::LeftRunning
        )
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("as requested"),
            Self::Signal(signal) => f.write_str(signal),
            Self::Delivered => f.write_str("the last command has ended"),
            Self::Tunnel(reason) => write!(f, "the tunnel ended ({reason})"),
            Self::InterfaceDeleted => f.write_str("the interface was deleted"),
            Self::Failed(reason) => write!(f, "it failed ({reason})"),
            Self::Interrupted(interruption) => interruption.fmt(f),
            Self::NotUp { .. } | Self::LeftRunning => f.write_str("it did not come up"),
        }
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("interrupted by `convoy down`"),
            Self::Signal(signal) => write!(f, "interrupted by {signal}"),
            Self::CallerLeft => f.write_str("the command is gone"),
        }
    }
}
