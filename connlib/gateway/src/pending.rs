//! Connections whose targets have not answered. If a peer has as many as it may, one to a silent host gives way.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use convoy_network::shares::Share;

/// How long a target may take before its connection can give way: hosts that answer do so before.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waiting connections, by peer and then by age.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<(u32, u64), Waiting>,
    serial: u64,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    has_answered: bool,
    /// Given back when it leaves.
    _share: Share,
    /// Dropped when it gives way.
    _goes_on: oneshot::Sender<()>,
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Ticket {
    pending: Pending,
    key: (u32, u64),
    gives_way: oneshot::Receiver<()>,
}

impl Pending {
    pub(super) fn add(&self, share: Share) -> Ticket {
        let (sender, gives_way) = oneshot::channel();
        let mut state = self.state();
        state.serial += 1;
        let key = (share.peer(), state.serial);
        let waiting = Waiting {
            since: Instant::now(),
            has_answered: false,
            _share: share,
            _goes_on: sender,
        };
        state.waiting.insert(key, waiting);
        Ticket {
            pending: self.clone(),
            key,
            gives_way,
        }
    }

    /// Makes a peer's oldest connection to a silent host give way; returns whether there is one.
    pub(super) fn make_room(&self, peer: u32) -> bool {
        let mut state = self.state();
        let mut of_peer = state.waiting.range((peer, 0)..=(peer, u64::MAX));
        let is_silent = |it: &Waiting| !it.has_answered && it.since.elapsed() >= PATIENCE;
        let oldest = of_peer.find(|(_, it)| is_silent(it)).map(|(key, _)| *key);
        let removed = oldest.and_then(|key| state.waiting.remove(&key));
        drop(state);
        removed.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Waits until it gives way to another one.
    pub(super) async fn gives_way(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.gives_way).await;
    }

    /// Notes that the target has answered.
    pub(super) fn answered(&self) {
        if let Some(waiting) = self.pending.state().waiting.get_mut(&self.key) {
            waiting.has_answered = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let removed = self.pending.state().waiting.remove(&self.key);
        drop(removed);
    }
}
