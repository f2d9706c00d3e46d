//! Values that are refused.

use std::ops::Range;

use crate::text::Text;

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

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
