//! Values that are refused.

use std::ops::Range;

use crate::{located::Place, report::Diagnostic, text::Text};

/// Why a value was refused. Contains no part of the value that may be a key.
#[derive(Debug)]
pub(crate) struct Bad {
    /// The part that is wrong.
    pub(crate) range: Range<usize>,
    /// Completes "expected …".
    pub(crate) expected: String,
    pub(crate) help: Option<String>,
}

pub(crate) type Parsed<T> = Result<T, Bad>;

impl Bad {
    pub(crate) fn new(at: Text<'_>, expected: impl Into<String>) -> Self {
        Self {
            range: at.range(),
            expected: expected.into(),
            help: None,
        }
    }

    /// Describes the error about a value of a key in a file.
    pub(crate) fn diagnostic(self, key: &str, file: usize) -> Diagnostic {
        let title = format!("invalid value for `{key}`");
        let label = format!("expected {}", self.expected);
        let error = Diagnostic::error(title, Place::new(file, self.range), label);
        match self.help {
            Some(help) => error.help(help),
            None => error,
        }
    }

    /// Describes the error about a value of the command line.
    pub(crate) fn sentence(&self) -> String {
        match &self.help {
            Some(help) => format!("expected {}; {help}", self.expected),
            None => format!("expected {}", self.expected),
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
