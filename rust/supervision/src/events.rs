//! Events of a tunnel, as they happen.
//!
//! ```text
//!  supervisor ─ Events ─▶ a queue for each subscriber ─▶ /run/convoy/NAME.control ─▶ convoy events
//! ```
//! While somebody follows them, the tunnel reports the handshakes of all peers. No timer runs for it.

mod model;
mod presence;
#[cfg(test)]
mod schema;
mod subscribers;

use std::{
    net::SocketAddr,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use convoy_config::{Config, decode_key, encode_key};
use convoy_portmap::ForwardedPort;
use convoy_proto::{
    Outcome,
    config::{PublicKey, RelayTransport},
};
use convoy_report::Report;
use tokio::sync::mpsc;

pub use model::{Event, What};
use presence::{Change, Presence, Seen};
pub use subscribers::QUEUE;
use subscribers::Subscribers;

/// JSON Schema of an [`Event`].
pub const SCHEMA: &str = include_str!("../schema/events.schema.json");

/// The most peers whose handshakes are followed, so that the message that names them fits.
const MAX_FOLLOWED: usize = 10_000;

/// Events that a supervisor reports about its tunnel.
#[derive(Debug)]
pub struct Events {
    interface: String,
    subscribers: Subscribers,
    presence: Presence,
    is_kill_switch_closed: bool,
    /// The forwarded port, for later subscribers.
    port: Option<What>,
    /// Whether there was a subscriber when the tunnel's reports were last configured.
    was_watched: bool,
}

impl Events {
    /// Creates the events of a tunnel without subscribers.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            subscribers: Subscribers::default(),
            presence: Presence::default(),
            is_kill_switch_closed: false,
            port: None,
            was_watched: false,
        }
    }

    /// Adds a subscriber; returns whether it is the only one. Then [`Self::begin`] is due.
    pub fn subscribe(&mut self, queue: mpsc::Sender<Event>) -> bool {
        self.subscribers.forget_closed();
        let is_first = self.subscribers.is_empty();
        if let Some(port) = &self.port {
            // The queue is new.
            let _ = queue.try_send(Event::now(&self.interface, port.clone()));
        }
        self.subscribers.add(queue);
        is_first
    }

    /// Records the tunnel's present state without an event.
    pub fn begin(&mut self, report: &Report, now: Instant) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.unwrap_or_default().as_secs();
        let outer = report.outer.iter().flat_map(|outer| &outer.peers);
        let peers = report.peers.iter().chain(outer).filter_map(|peer| {
            let key = decode_key(&peer.public_key)?;
            let age = |at| Duration::from_secs(time.saturating_sub(at));
            let latest = peer.latest_handshake.map(age);
            let seen = Seen {
                is_up: peer.connected_since.is_some(),
                latest: latest.and_then(|age| now.checked_sub(age)),
                endpoint: peer.endpoint.as_ref().and_then(|it| it.parse().ok()),
            };
            Some((PublicKey(*key), seen))
        });
        self.presence.set(peers);
    }

    /// Returns whether the first subscriber has come, or the last one has left, since the last call.
    pub fn take_change(&mut self) -> bool {
        self.subscribers.forget_closed();
        let is_watched = !self.subscribers.is_empty();
        std::mem::replace(&mut self.was_watched, is_watched) != is_watched
    }

    /// The peers whose handshakes matter.
    pub fn followed(&self, config: &Config) -> impl Iterator<Item = PublicKey> {
        let most = match self.subscribers.is_empty() {
            true => 0,
            false => MAX_FOLLOWED,
        };
        let peers = config.peers.iter().flat_map(|peer| {
            let directs = peer.directs.iter().map(|direct| direct.public_key.value);
            std::iter::once(peer.public_key.value).chain(directs)
        });
        let outer = config.outer_peers().iter();
        let outer = outer.map(|peer| peer.public_key.value);
        outer.chain(peers).take(most)
    }

    /// Sends an event to all subscribers.
    pub fn publish(&mut self, what: What) {
        if !self.subscribers.is_empty() {
            self.subscribers.publish(&Event::now(&self.interface, what));
        }
    }

    /// Call when the kill switch may have been opened or closed.
    pub fn kill_switch(&mut self, is_closed: bool) {
        if std::mem::replace(&mut self.is_kill_switch_closed, is_closed) != is_closed {
            self.publish(match is_closed {
                true => What::KillSwitchClosed,
                false => What::KillSwitchOpened,
            });
        }
    }

    /// Call when a port is newly forwarded.
    pub fn port_forwarded(&mut self, port: &ForwardedPort) {
        let what = What::PortForwarded {
            port: port.port,
            address: port.address.map(|address| address.to_string()),
        };
        self.port = Some(what.clone());
        self.publish(what);
    }

    /// Call when the forwarded port is lost.
    pub fn port_lost(&mut self, reason: String) {
        self.port = None;
        self.publish(What::PortLost { reason });
    }

    /// Call when a handshake of a peer has an outcome.
    pub fn handshake(&mut self, config: &Config, peer: PublicKey, outcome: Outcome, now: Instant) {
        // For a direct peer, the path matters instead.
        let mut peers = config.peers.iter().chain(config.outer_peers());
        if self.subscribers.is_empty() || !peers.any(|it| it.public_key.value == peer) {
            return;
        }
        let change = self.presence.handle_handshake(peer, outcome, now);
        self.tell(config, peer, change);
    }

    /// Call when a peer has this endpoint.
    pub fn endpoint(&mut self, config: &Config, peer: PublicKey, endpoint: SocketAddr) {
        if self.subscribers.is_empty() {
            return;
        }
        let change = self.presence.handle_endpoint(peer, endpoint);
        self.tell(config, peer, change);
    }

    /// Call when data to a direct peer takes another path: a direct one, with its address and kind, or the hub, with
    /// the reason.
    pub fn path(
        &mut self,
        config: &Config,
        peer: PublicKey,
        (remote, kind, why): (Option<SocketAddr>, Option<String>, Option<String>),
    ) {
        let mut all = config.peers.iter().flat_map(|peer| &peer.directs);
        let Some(direct) = all.find(|it| it.public_key.value == peer) else {
            return;
        };
        let address = direct.allowed_ips.first();
        self.publish(What::PathChanged {
            peer: encode_key(&peer.0).as_str().to_owned(),
            address: address.map(|prefix| prefix.value.address().to_string()),
            remote: remote.map(|remote| remote.to_string()),
            kind,
            why,
        });
    }

    /// Call when data to a peer takes another TURN server, or none.
    pub fn relay(
        &mut self,
        config: &Config,
        peer: PublicKey,
        server: Option<SocketAddr>,
        transport: Option<RelayTransport>,
    ) {
        let mut peers = config.peers.iter();
        let Some(known) = peers.find(|it| it.public_key.value == peer) else {
            return;
        };
        self.publish(What::RelayChanged {
            peer: model::Peer::new(&peer, known.friendly_name.as_deref(), None),
            relay: server.map(|server| server.to_string()),
            transport: transport.map(|it| it.name().to_owned()),
        });
    }

    /// Call when another configuration is in effect.
    pub fn reloaded(&mut self, config: &Config) {
        let peers = config.peers.iter().chain(config.outer_peers());
        let peers = peers.map(|peer| peer.public_key.value);
        let peers: std::collections::HashSet<_> = peers.collect();
        self.presence.retain(|peer| peers.contains(peer));
        self.publish(What::Reloaded);
    }

    /// Call when the tunnel's process has died.
    pub fn tunnel_died(&mut self, reason: Option<String>) {
        self.presence.forget_sessions();
        self.publish(What::TunnelDied { reason });
    }

    fn tell(&mut self, config: &Config, peer: PublicKey, change: Option<Change>) {
        let Some(change) = change else { return };
        let of = |peers: &[convoy_config::Peer]| {
            let mut peers = peers.iter();
            let found = peers.find(|it| it.public_key.value == peer);
            found.map(|it| it.friendly_name.clone())
        };
        let of_outer = of(config.outer_peers());
        let is_outer = of_outer.is_some();
        let name = of(&config.peers).or(of_outer).flatten();
        let mut described = model::Peer::new(&peer, name.as_deref(), self.presence.endpoint(&peer));
        let outer = config.via.as_ref().filter(|_| is_outer);
        described.via = outer.map(|via| via.config.name.to_string());
        self.publish(match change {
            Change::Up => What::PeerUp(described),
            Change::Down => What::PeerDown(described),
            Change::Moved { from } => What::PeerMoved {
                peer: described,
                from: from.map(|from| from.to_string()),
            },
        });
    }
}
