//! Events of a tunnel.

use std::net::SocketAddr;

use convoy_daemon::supervised::protocol::ToSupervisor;
use convoy_proto::{
    Outcome,
    config::{PublicKey, RelayTransport},
};

/// An event of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelEvent {
    /// A UAPI client wants to change the firewall mark or the port: answer it within 5 s.
    Asks {
        /// Number of the question, for the answer.
        id: u64,
        /// The mark that the client wants, 0 for none.
        fwmark: Option<u32>,
        /// The port that the client wants, 0 for any.
        listen_port: Option<u16>,
    },
    /// Another program has changed the tunnel's configuration.
    Changed,
    /// A handshake with a followed peer has an outcome.
    Handshake {
        /// Public key of the peer.
        peer: PublicKey,
        /// Result of the handshake.
        outcome: Outcome,
    },
    /// A followed peer has a new endpoint.
    Moved {
        /// Public key of the peer.
        peer: PublicKey,
        /// The endpoint that it has now.
        endpoint: SocketAddr,
    },
    /// Data to a followed direct peer takes another path.
    Path {
        /// Public key of the peer.
        peer: PublicKey,
        /// The address of the direct path; without one, data goes by the hub.
        remote: Option<SocketAddr>,
        /// Kind of that address.
        kind: Option<String>,
        /// Reason why data goes by the hub.
        why: Option<String>,
    },
    /// Data to a followed peer takes this TURN server, or none.
    Relay {
        /// The peer's public key.
        peer: PublicKey,
        /// The server's address and port; `None` if data goes directly.
        server: Option<SocketAddr>,
        /// The transport to it; `None` from a process of an earlier version as well.
        transport: Option<RelayTransport>,
    },
    /// The tunnel announces its end and the reason; [`TunnelProcess::stop`](super::TunnelProcess::stop) waits for the
    /// end.
    Ended {
        /// In words.
        reason: String,
    },
    /// The process has ended unexpectedly.
    Died,
}

impl TunnelEvent {
    /// Converts a message of the tunnel; `None` if it is not an event.
    pub(super) fn of(message: ToSupervisor) -> Option<Self> {
        match message {
            ToSupervisor::Asks {
                id,
                fwmark,
                listen_port,
            } => Some(Self::Asks {
                id,
                fwmark,
                listen_port,
            }),
            ToSupervisor::Changed => Some(Self::Changed),
            ToSupervisor::Handshake {
                peer,
                answered,
                given_up,
            } => Some(Self::Handshake {
                peer: peer.0,
                outcome: match (answered, given_up) {
                    (true, _) => Outcome::Answered,
                    (false, false) => Outcome::Unanswered,
                    (false, true) => Outcome::GivenUp,
                },
            }),
            ToSupervisor::Moved { peer, endpoint } => Some(Self::Moved {
                peer: peer.0,
                endpoint,
            }),
            ToSupervisor::Path {
                peer,
                remote,
                kind,
                why,
            } => Some(Self::Path {
                peer: peer.0,
                remote,
                kind,
                why,
            }),
            ToSupervisor::Relay {
                peer,
                server,
                transport,
            } => Some(Self::Relay {
                peer: peer.0,
                server,
                transport,
            }),
            ToSupervisor::Ended { reason } => Some(Self::Ended { reason }),
            ToSupervisor::Hello { .. } | ToSupervisor::Unknown => None,
        }
    }
}
