//! Messages to the tunnel's process about TURN servers.

use convoy_proto::config::Relay;

/// Remembers the TURN servers that the tunnel process was last told of.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    /// The last message; `None` if the process may have one of an earlier supervisor.
    told: Option<Vec<Relay>>,
}

impl Relays {
    /// Notes that there is a process which has just started, or which an earlier supervisor has configured.
    pub(crate) fn begin(&mut self, is_new: bool) {
        self.told = is_new.then(Vec::new);
    }

    /// Returns what the process is to be told, if it does not know it.
    pub(crate) fn news(&self, relays: Vec<Relay>) -> Option<Vec<Relay>> {
        (self.told.as_ref() != Some(&relays)).then_some(relays)
    }

    /// Notes a message that the process got.
    pub(crate) fn note_told(&mut self, relays: Vec<Relay>) {
        self.told = Some(relays);
    }
}
