use std::time::Duration;

use crate::{error::LabError, traffic::TrafficError};

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The lab, or a daemon in it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The two ends of the tunnel do not find each other.
    #[error("no packet passed the tunnel within {patience:?}\n{left}\n{right}")]
    NoPassage {
        /// How long was tried.
        patience: Duration,
        /// The end of the left daemon's log.
        left: String,
        /// The end of the right daemon's log.
        right: String,
    },
}
