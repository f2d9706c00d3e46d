use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc;

use super::ends::Ends;
use convoy_network::{counters::Counters, waiting::Early};

/// Datagrams from the inlet that wait for their flow: bursts of a stream's beginning, and of echo requests.
pub(super) const MAX_WAITING: usize = 64;

/// A datagram from the inlet for a flow.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Early,
    /// Remaining hops.
    pub(super) hops: u8,
}

/// The flows of one protocol that exist, each with a way for what comes out of the inlet.
///
/// A map of std, as peers choose its keys.
#[derive(Debug, Default)]
pub(super) struct Flows(Mutex<HashMap<Ends, mpsc::Sender<Message>>>);

impl Flows {
    /// Passes a message on to its flow, or counts that there was no room; gives it back if there is no flow.
    pub(super) fn pass_on(
        &self,
        ends: Ends,
        message: Message,
        counters: &Counters,
    ) -> Option<Message> {
        let all = self.all();
        let Some(flow) = all.get(&ends) else {
            return Some(message);
        };
        if flow.try_send(message).is_err() {
            counters.drop_datagrams(1);
        }
        None
    }

    /// Adds a flow that begins with a message.
    pub(super) fn begin(&self, ends: Ends, message: Message) -> mpsc::Receiver<Message> {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        // There is room.
        let _ = sender.try_send(message);
        self.all().insert(ends, sender);
        waiting
    }

    /// Removes a flow.
    pub(super) fn end(&self, ends: Ends) {
        self.all().remove(&ends);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Ends, mpsc::Sender<Message>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
