//! Messages to the tunnel's process about TURN servers.

use std::net::SocketAddr;

use convoy_path_mtu::Way;
use convoy_proto::config::{Relay, RelayTransport};

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

    /// Returns the way of data that the server at this address carries; direct without a server.
    pub(crate) fn way(&self, server: Option<SocketAddr>) -> Way {
        let Some(server) = server else {
            return Way::Direct;
        };
        let mut told = self.told.iter().flatten();
        // The event names no transport: of two, the one that bounds packets.
        let is_datagrams =
            told.any(|it| it.server == server && it.transport == RelayTransport::Udp);
        match is_datagrams {
            true => Way::Relay,
            false => Way::Stream,
        }
    }

    /// Records a message that the process has received.
    pub(crate) fn note_told(&mut self, relays: Vec<Relay>) {
        self.told = Some(relays);
    }
}
