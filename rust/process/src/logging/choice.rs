//! Choices of a user: the format of the log, and its level.

#[cfg(feature = "clap")]
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, fields for systemd's journal, elsewhere JSON
    Auto,
    /// Human-readable
    Text,
    /// One JSON object per line, always with time, severity and message
    Json,
    /// Fields, sent to systemd's journal instead of stdout
    Journal,
}

/// A level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(ValueEnum))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a command line would print the documentation")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// Finds the level of this name; `None` if there is none.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}
