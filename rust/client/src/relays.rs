//! Messages to the tunnel's process about TURN servers.

use convoy_proto::config::Relay;

/// The TURN servers last sent to the tunnel's process.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    /// The last message; `None` if the process may still have an earlier supervisor's.
    told: Option<Vec<Relay>>,
}

impl Relays {
    /// Records a process that has just started or was configured by an earlier supervisor.
    pub(crate) fn begin(&mut self, is_new: bool) {
        self.told = is_new.then(Vec::new);
    }

    /// Returns the message that the process lacks, if any.
    pub(crate) fn news(&self, relays: Vec<Relay>) -> Option<Vec<Relay>> {
        (self.told.as_ref() != Some(&relays)).then_some(relays)
    }

    /// Records a message that the process has received.
    pub(crate) fn note_told(&mut self, relays: Vec<Relay>) {
        self.told = Some(relays);
    }
}
