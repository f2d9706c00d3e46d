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
    pub(crate) fn way(&self, server: Option<SocketAddr>, transport: Option<RelayTransport>) -> Way {
        let Some(server) = server else {
            return Way::Direct;
        };
        let mut told = self.told.iter().flatten();
        let mut has_udp =
            || told.any(|it| it.server == server && it.transport == RelayTransport::Udp);
        match transport {
            Some(RelayTransport::Udp) => Way::Relay,
            // A process of an earlier version names no transport: of two, the one that bounds packets.
            None if has_udp() => Way::Relay,
            _ => Way::Stream,
        }
    }

    /// Records a message that the process has received.
    pub(crate) fn note_told(&mut self, relays: Vec<Relay>) {
        self.told = Some(relays);
    }
}

#[cfg(test)]
mod tests {
    use convoy_proto::config::{Authorities, Password};

    use super::*;

    #[test]
    fn the_way_is_that_of_the_transport_even_if_one_address_has_two() {
        let server: SocketAddr = "192.0.2.9:3478".parse().unwrap();
        let mut relays = Relays::default();
        let by = |transport| Relay {
            host: "turn.example.org".to_owned(),
            server,
            transport,
            user: "alice".to_owned(),
            password: Password("secret".to_owned()),
            authorities: Authorities::default(),
        };
        relays.note_told(vec![by(RelayTransport::Udp), by(RelayTransport::Tcp)]);
        let way = |transport| relays.way(Some(server), transport);
        assert_eq!(way(Some(RelayTransport::Udp)), Way::Relay);
        assert_eq!(way(Some(RelayTransport::Tcp)), Way::Stream);
        assert_eq!(way(None), Way::Relay);
        assert_eq!(relays.way(None, None), Way::Direct);
        relays.note_told(vec![by(RelayTransport::Tls)]);
        assert_eq!(relays.way(Some(server), None), Way::Stream);
    }
}
