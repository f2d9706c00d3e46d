//! A configuration as it was read.

use crate::{config::Config, report::Report};

/// A configuration and its warnings.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings only.
    pub warnings: Report,
}
