//! Changes that somebody else has undone.

/// When a missing change comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// At once.
    Restore,
    /// No earlier than the back-off allows.
    RestoreAfterPause,
}
