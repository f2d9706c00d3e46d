//! Errors.

use std::{fmt, io};

use thiserror::Error;

/// A request that failed: its operation, the object and the kernel's reason.
#[derive(Debug, Error)]
#[error("cannot {operation} {object}: {cause}")]
pub struct NetlinkError {
    /// Such as "add".
    pub operation: &'static str,
    /// Such as "route 10.0.0.0/8 in table 254".
    pub object: String,
    /// The kernel's reason.
    pub cause: io::Error,
}

impl NetlinkError {
    pub(crate) fn on(
        operation: &'static str,
        object: impl fmt::Display,
    ) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self {
            operation,
            object: object.to_string(),
            cause,
        }
    }
}

/// Leaves the kernel's reason alone, for callers that name the object in their own words.
impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        error.cause
    }
}
