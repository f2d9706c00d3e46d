//! One TURN server and its client.

use std::net::SocketAddr;

use convoy_turn::{Client, Credentials, Failure, Phase, Server as Address, Transport};
use convoy_types::{Relay, RelayAddress, RelayState, RelayStatus, RelayTransport};

use super::{RelayId, Relayed};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) id: RelayId,
    pub(crate) relay: Relay,
    pub(crate) client: Client,
    /// Whether peers are to be reached by it, as those before it do not work.
    pub(crate) is_asked: bool,
    /// The reason, in words, why its stream last ended.
    pub(crate) why_closed: Option<String>,
}

impl Server {
    /// `None` if no STUN message can carry the credentials, which configuration refuses.
    pub(crate) fn new(id: RelayId, relay: Relay) -> Option<Self> {
        let address = Address {
            address: relay.server,
            transport: match relay.transport {
                RelayTransport::Udp => Transport::Udp,
                RelayTransport::Tcp | RelayTransport::Tls => Transport::Stream,
            },
        };
        let password = relay.password.0.clone();
        let credentials = Credentials::new(relay.user.clone(), password).ok()?;
        Some(Self {
            id,
            relay,
            client: Client::new(address, credentials),
            is_asked: false,
            why_closed: None,
        })
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.relay.transport != RelayTransport::Udp
    }

    /// Returns whether it works, as far as is known, and has or may get an address of the family of one of these, if
    /// there are any.
    pub(crate) fn may_serve(&self, to: &[SocketAddr]) -> bool {
        match self.client.phase() {
            Phase::Paused(_) => false,
            Phase::Ready(given) => {
                to.is_empty() || to.iter().any(|it| given.reaching(*it).is_some())
            }
            _ => true,
        }
    }

    /// Returns whether datagrams to `to` pass.
    pub(crate) fn reaches(&self, to: SocketAddr) -> bool {
        self.client.channel(to).is_some()
    }

    /// The way to a peer's endpoint.
    pub(crate) fn route_to(&self, to: Option<SocketAddr>) -> Relayed {
        Relayed {
            relay: self.id,
            address: RelayAddress {
                server: self.relay.server,
                transport: self.relay.transport,
            },
            channel: to.and_then(|to| self.client.channel(to)),
        }
    }

    pub(crate) fn status(&self, carries: usize) -> RelayStatus {
        RelayStatus {
            host: self.relay.host.clone(),
            server: self.relay.server,
            transport: self.relay.transport,
            state: match self.client.phase() {
                Phase::Idle | Phase::Ended => RelayState::Idle,
                Phase::Connecting => RelayState::Connecting,
                Phase::Allocating => RelayState::Allocating,
                Phase::Ready(relayed) => RelayState::Ready(relayed.iter().collect()),
                Phase::Paused(failure) => RelayState::Failed(self.words(failure)),
            },
            carries,
        }
    }

    fn words(&self, failure: Failure) -> String {
        let why = self.why_closed.as_ref();
        let why = why.filter(|_| failure == Failure::Connection);
        why.cloned().unwrap_or_else(|| failure.to_string())
    }
}
