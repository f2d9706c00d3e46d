//! The connections that exist or begin.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use convoy_network::Stream;
use tokio::sync::oneshot;

use super::{ends::Ends, pending::Pending};

/// The connections that exist or begin.
///
/// A map of std, as peers choose their keys.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Mutex<HashMap<Ends, State>>,
    pub(super) pending: Pending,
}

#[derive(Debug)]
pub(super) enum State {
    /// The target has not answered.
    Connecting,
    /// The peer has not.
    Accepting(oneshot::Sender<Stream>),
    Open,
}

impl Connections {
    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<Ends, State>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sender for the task that waits for the peer's end of a connection.
    pub(super) fn accepted(&self, ends: Ends) -> Option<oneshot::Sender<Stream>> {
        let mut all = self.all();
        let state = all.get_mut(&ends)?;
        match std::mem::replace(state, State::Open) {
            State::Accepting(sender) => Some(sender),
            other => {
                *state = other;
                None
            }
        }
    }
}
