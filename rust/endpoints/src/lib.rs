//! Peers' addresses: endpoints that are looked up, and replaced when they do not answer.
//!
//! [`Addresses`] looks names up outside of the tunnel, for at most 16 at once; `endpoints` decides, without a clock or
//! a socket of its own, which address serves.
//!
//! A supervisor calls it, and whoever foresees what a configuration does. It configures no tunnel: [`Changes`] say
//! what its caller must tell it. It changes nothing on the host, and reads no file of its own.

mod endpoints;
mod servers;

use std::{
    cell::OnceCell,
    collections::HashMap,
    future::pending,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use convoy_carrier::Roots;
use convoy_config::{Config, Endpoint, Host, Peer};
use convoy_names::Names;
use convoy_proto::config::{Authorities, PeerUpdate, PublicKey, Relay};
use tokio::{
    task::{JoinError, JoinSet},
    time::{sleep_until, timeout},
};
use tracing::{debug, warn};

use endpoints::Endpoints;
pub use servers::has_directs;
use servers::servers_of;
use servers::{relays_of, streams_of, stun_of};

/// The most look-ups at once.
const MAX_LOOK_UPS: usize = 16;

/// How long `convoy up` waits for the first look-ups.
const FIRST_LOOK_UPS: Duration = Duration::from_secs(5);

/// The peers' addresses.
#[derive(Debug)]
pub struct Addresses {
    endpoints: Endpoints,
    /// Whether the tunnel goes through another.
    goes_through: bool,
    names: Arc<Names>,
    /// The authorities that this system trusts, once a server by TLS has needed them.
    authorities: OnceCell<Authorities>,
    look_ups: JoinSet<(String, Result<Vec<IpAddr>, String>)>,
}

/// The hosts to which a tunnel sends outside of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The endpoints that are in use.
    pub endpoints: Vec<IpAddr>,
    /// The name servers that are asked for endpoints.
    pub resolvers: Vec<IpAddr>,
    /// The STUN and TURN servers.
    pub servers: Vec<IpAddr>,
    /// The TURN servers that are reached by streams.
    pub streams: Vec<SocketAddr>,
}

/// Changes that the tunnel must be told.
#[derive(Debug, Default)]
pub struct Changes {
    /// Peers with other endpoints.
    pub peers: Vec<PeerUpdate>,
    /// Peers that are to shake hands at once.
    pub handshakes: Vec<PublicKey>,
    /// Peers of the tunnel through which this one goes with other endpoints, or back at a former one.
    pub outer: Vec<PublicKey>,
    /// Whether STUN or TURN servers have other addresses.
    pub has_other_servers: bool,
}

impl Addresses {
    /// The addresses that need no look-up. Sockets for look-ups have this mark.
    pub fn new(config: &Config, mark: Option<u32>) -> Self {
        Self {
            endpoints: Endpoints::new(config),
            goes_through: config.via.is_some(),
            names: names(config, mark),
            authorities: OnceCell::new(),
            look_ups: JoinSet::new(),
        }
    }

    /// Follows another configuration, or another mark.
    pub fn replace(&mut self, config: &Config, mark: Option<u32>, now: Instant) {
        self.endpoints.replace(config, now);
        self.names = names(config, mark);
    }

    /// Follows another mark.
    pub fn mark(&mut self, config: &Config, mark: Option<u32>) {
        self.names = names(config, mark);
    }

    /// The address that a peer has now.
    pub fn of(&self, peer: &Peer) -> Option<SocketAddr> {
        self.endpoints.address_of(&peer.public_key.value)
    }

    /// The hosts to which a tunnel with this configuration sends outside of itself, as far as they are known.
    pub fn outside(&self, config: &Config) -> Outside {
        let peers = config.peers.iter().chain(config.outer_peers());
        let endpoints = peers.flat_map(|peer| &peer.endpoints);
        let endpoints = endpoints.map(|it| &it.value).chain(servers_of(config));
        let has_names = endpoints
            .into_iter()
            .any(|it| matches!(it.host, Host::Name(_)));
        Outside {
            endpoints: self.endpoints.all(),
            resolvers: match has_names {
                true => self.names.servers(),
                false => Vec::new(),
            },
            servers: self
                .endpoints
                .servers()
                .iter()
                .map(SocketAddr::ip)
                .collect(),
            streams: self.endpoints.of_servers(streams_of(config)),
        }
    }

    /// Returns the addresses of the STUN servers that are known, in the order of the file.
    pub fn stun(&self, config: &Config) -> Vec<SocketAddr> {
        self.endpoints.of_servers(stun_of(config))
    }

    /// Returns the TURN servers at the addresses that are known, in the order of the file.
    pub fn relays(&self, config: &Config) -> Vec<Relay> {
        let resolve = |server: &Endpoint| self.endpoints.of_servers([server]);
        let authorities = || {
            let read = || Authorities(Roots::native().to_bytes().into());
            self.authorities.get_or_init(read).clone()
        };
        relays_of(config, resolve, authorities)
    }

    /// Returns what is wrong with STUN and TURN servers.
    pub fn problems_of_servers(&self) -> impl Iterator<Item = &str> {
        self.endpoints.problems_of_servers()
    }

    /// Returns whether a name is to be looked up now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.endpoints.poll_timeout().is_some_and(|due| due <= now)
    }

    /// Returns what is wrong with each peer.
    pub fn problems(&self, config: &Config) -> HashMap<PublicKey, String> {
        let peers = config.peers.iter().chain(config.outer_peers());
        let peers = peers.map(|peer| peer.public_key.value);
        peers
            .filter_map(|peer| Some((peer, self.endpoints.problem_of(&peer)?.to_owned())))
            .collect()
    }

    /// The peers whose handshakes decide about their addresses.
    pub fn followed(&self) -> Vec<PublicKey> {
        self.endpoints.followed()
    }

    /// Notes whether a handshake was answered.
    pub fn handshake(&mut self, peer: &PublicKey, answered: bool, now: Instant) {
        self.endpoints.handle_handshake(peer, answered, now);
    }

    /// Notes that the host is in another network, or has slept.
    pub fn network_changed(&mut self, now: Instant) {
        self.endpoints.handle_network_changed(now);
    }

    /// Waits until something is to be done: [`Addresses::changes`] does it. May be cancelled.
    pub async fn next(&mut self) {
        // Further look-ups wait for one of those to end.
        let is_full = self.look_ups.len() >= MAX_LOOK_UPS;
        let due = self.endpoints.poll_timeout().filter(|_| !is_full);
        let finished = tokio::select! {
            Some(finished) = self.look_ups.join_next() => finished,
            () = until(due) => return,
        };
        self.answered(finished);
    }

    /// Starts the look-ups that are due; returns what the tunnel must be told.
    pub fn changes(&mut self, now: Instant) -> Changes {
        while self.look_ups.len() < MAX_LOOK_UPS
            && let Some(name) = self.endpoints.poll_lookup(now)
        {
            let names = Arc::clone(&self.names);
            self.look_ups.spawn(async move {
                let answer = names.look_up(&name).await;
                (name, answer)
            });
        }
        let mut changes = Changes::default();
        while let Some((peer, endpoint)) = self.endpoints.poll_change() {
            if self.goes_through && !self.endpoints.is_inside(&peer) {
                changes.outer.push(peer);
                continue;
            }
            changes.peers.push(PeerUpdate {
                update_only: true,
                endpoint: Some(endpoint),
                ..PeerUpdate::new(peer)
            });
        }
        while let Some(peer) = self.endpoints.poll_handshake() {
            changes.handshakes.push(peer);
        }
        changes.has_other_servers = self.endpoints.take_servers_change();
        changes
    }

    /// Waits, for a limited time, until the look-ups of peers that have begun are answered.
    pub async fn settle(&mut self) {
        let answered = async {
            while self.endpoints.awaits_peers()
                && let Some(finished) = self.look_ups.join_next().await
            {
                self.answered(finished);
            }
        };
        if timeout(FIRST_LOOK_UPS, answered).await.is_err() {
            warn!("Names are still being looked up; their peers have no address until then");
        }
    }

    fn answered(&mut self, finished: Result<(String, Result<Vec<IpAddr>, String>), JoinError>) {
        match finished {
            Ok((name, answer)) => {
                debug!(name, ?answer, "A name was looked up");
                self.endpoints.handle_answer(&name, answer, Instant::now());
            }
            // It panicked, which ends the process, or the runtime ends.
            Err(error) => debug!("A look-up ended: {error}"),
        }
    }
}

fn names(config: &Config, mark: Option<u32>) -> Arc<Names> {
    let it = &config.interface;
    let servers = it.dns_servers.iter().map(|server| server.value);
    let own = it.addresses.iter().map(|own| own.address().to_canonical());
    Arc::new(Names::new(mark, servers.collect(), own.collect()))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => pending().await,
    }
}
