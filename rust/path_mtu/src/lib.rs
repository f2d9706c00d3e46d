//! Whether packets as large as the interface's MTU get through the tunnel.
//!
//! The host's MTU fits the routes to the endpoints (or is configured), but a path may carry less than its first link
//! and drop what is larger without a word: large packets vanish, while small ones arrive. Echo requests to a host
//! behind the peer find that out (`probe`), and the limit lowers the MTU. It is never raised because of silence.
//!
//! - **When**: after a peer's first answered handshake since the tunnel came up, was taken over or got another MTU,
//!   since the peer got another endpoint, since the network changed and since the machine has slept. Not in a pause,
//!   and never just because time has passed: an idle tunnel stays idle.
//! - **Which way**: a limit belongs to the way on which it was found, directly or by a TURN server. What is known of the
//!   direct way alone bounds the one by a server over UDP as well, less 4 bytes for the header of ChannelData. By a
//!   stream, any size arrives. Another way is probed after the next handshake.
//! - **How long a limit lasts**: until the network changes, or the peer's endpoints in the configuration, as that is
//!   another path. Another supervisor that takes the tunnel over keeps it.
//! - **Who is asked**: `targets`. If nobody answers, nothing is known and nothing changes. Nor does anything
//!   without CAP_NET_RAW.
//!
//! A supervisor calls it: [`PathMtu`] says which peers' handshakes matter, and what limit has been found; the supervisor
//! lowers the MTU. This crate sends nothing but echo requests into the tunnel, and changes no MTU, route or file.

mod echo;
mod probe;
mod targets;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    time::Instant,
};

use convoy_config::{Config, Peer};
use convoy_daemon::supervised::protocol::Key;
use convoy_host::smallest_mtu;
use convoy_proto::config::PublicKey;
use serde::{Deserialize, Serialize};
use tokio::time::sleep_until;
use tracing::debug;

use echo::Echoes;
use probe::{Outcome, Probe};
use targets::targets;

/// The most peers whose paths are probed; the MTU fits the others by their routes alone.
const MAX_PEERS: usize = 64;

/// Bytes of ChannelData ahead of a datagram (RFC 8656 §12.4).
const CHANNEL_DATA: u32 = 4;

/// The paths to the peers.
#[derive(Debug)]
pub struct PathMtu {
    /// Peers whose paths are probed after their next handshakes.
    wanted: BTreeSet<PublicKey>,
    /// Whether these have changed since [`Self::take_change`].
    is_changed: bool,
    /// Peers whose handshakes have been answered since.
    ready: BTreeSet<PublicKey>,
    running: Option<Running>,
    found: BTreeMap<(PublicKey, Way), Narrow>,
    /// Ways of peers that are not reached directly.
    ways: BTreeMap<PublicKey, Way>,
    /// Peers that a TURN server may reach.
    relayable: BTreeSet<PublicKey>,
}

/// The way of a peer's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// To the peer's endpoint.
    #[default]
    Direct,
    /// By a TURN server over UDP.
    Relay,
    /// By a stream to a TURN server.
    Stream,
}

/// A path that carries less than the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Narrow {
    /// The host that was asked.
    target: IpAddr,
    /// The largest packet in bytes that it answers; `None` if none does that is as large as an MTU must be.
    largest: Option<u32>,
}

/// Findings about a path, for another supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct NotedPath {
    peer: Key,
    /// Tells whether the peer still has the same endpoints; another build of this program may disagree.
    endpoints: u64,
    /// Where it was found; the way that the peer's data takes comes last.
    #[serde(default)]
    way: Way,
    narrow: Narrow,
}

#[derive(Debug)]
struct Running {
    peer: PublicKey,
    mtu: u32,
    probe: Probe,
    echoes: Echoes,
}

impl PathMtu {
    /// Nothing is known yet.
    pub fn new(config: &Config) -> Self {
        let mut paths = Self {
            wanted: BTreeSet::new(),
            is_changed: false,
            ready: BTreeSet::new(),
            running: None,
            found: BTreeMap::new(),
            ways: BTreeMap::new(),
            relayable: relayable(config),
        };
        paths.want_all(config);
        paths
    }

    /// The peers whose handshakes and ways matter.
    pub fn followed(&self) -> impl Iterator<Item = PublicKey> {
        self.wanted.union(&self.relayable).copied()
    }

    /// Returns whether [`Self::followed`] may have changed since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns what has been found.
    pub fn noted(&self, config: &Config) -> Vec<NotedPath> {
        let peers = candidates(config).flat_map(|peer| {
            let key = peer.public_key.value;
            let mut ways = [Way::Direct, Way::Relay];
            ways.sort_by_key(|way| *way == self.way(&key));
            let noted = move |way| {
                Some(NotedPath {
                    peer: Key(key),
                    endpoints: digest(peer),
                    way,
                    narrow: *self.found.get(&(key, way))?,
                })
            };
            ways.into_iter().filter_map(noted)
        });
        peers.collect()
    }

    /// Takes over what another supervisor has found of the paths to these endpoints.
    pub fn restore(&mut self, config: &Config, noted: &[NotedPath]) {
        for peer in candidates(config) {
            let key = peer.public_key.value;
            let paths = noted.iter().filter(|path| path.peer.0 == key);
            for path in paths.filter(|path| path.endpoints == digest(peer)) {
                self.found.insert((key, path.way), path.narrow);
                self.ways.insert(key, path.way);
            }
        }
    }

    /// The largest MTU in bytes that works on all paths, as far as known.
    pub fn limit(&self) -> Option<u32> {
        self.present().filter_map(|it| it.largest).min()
    }

    /// The paths that carry too little, in words.
    pub fn warnings(&self, mtu: u32) -> impl Iterator<Item = String> {
        self.present().map(move |narrow| narrow.text(mtu))
    }

    /// Call when another configuration is in effect.
    pub fn replace(&mut self, former: &Config, config: &Config) {
        self.stop();
        let endpoints = |peer: &Peer| (peer.public_key.value, peer.endpoints.clone());
        let known: BTreeMap<_, _> = candidates(former).map(endpoints).collect();
        let is_same = |peer: &&Peer| known.get(&peer.public_key.value) == Some(&peer.endpoints);
        let (same, others): (Vec<_>, Vec<_>) = candidates(config).partition(is_same);
        let same: BTreeSet<_> = same.iter().map(|peer| peer.public_key.value).collect();
        self.wanted.retain(|peer| same.contains(peer));
        self.ready.retain(|peer| same.contains(peer));
        self.found.retain(|(peer, _), _| same.contains(peer));
        self.ways.retain(|peer, _| same.contains(peer));
        self.relayable = relayable(config);
        for peer in others {
            self.want(peer.public_key.value);
        }
        if former.interface.mtu != config.interface.mtu {
            self.want_all(config);
        }
        self.is_changed = true;
    }

    /// Call when the host is in another network; returns whether there was a limit until now.
    pub fn network_changed(&mut self, config: &Config) -> bool {
        let had_limit = self.limit().is_some();
        self.found.clear();
        self.want_all(config);
        had_limit
    }

    /// Probes every path after the next handshake: something has changed that may concern all of them.
    pub fn want_all(&mut self, config: &Config) {
        self.running = None;
        self.ready.clear();
        self.wanted.clear();
        for peer in candidates(config) {
            self.want(peer.public_key.value);
        }
        self.is_changed = true;
    }

    /// Call when a peer has another endpoint. What was found stays: it lowers the MTU at worst.
    pub fn moved(&mut self, peer: PublicKey) {
        if self.running.as_ref().is_some_and(|it| it.peer == peer) {
            self.running = None;
        }
        self.ready.remove(&peer);
        self.want(peer);
    }

    /// Call when a peer's data takes this way from now on; returns whether the limit has changed.
    pub fn took_way(&mut self, peer: PublicKey, way: Way) -> bool {
        if self.way(&peer) == way {
            return false;
        }
        let former = self.limit();
        self.ways.insert(peer, way);
        self.moved(peer);
        self.limit() != former
    }

    /// Call when a handshake was answered.
    pub fn handshake(&mut self, peer: &PublicKey) {
        if self.wanted.remove(peer) {
            self.ready.insert(*peer);
            self.is_changed = true;
        }
    }

    /// Stops the probe that runs; [`Self::begin`] starts it over.
    pub fn stop(&mut self) {
        let stopped = self.running.take();
        self.ready.extend(stopped.map(|it| it.peer));
    }

    /// Begins the next probe that is due, if none runs; `mtu` is the interface's.
    pub fn begin(&mut self, config: &Config, mtu: u32) {
        while self.running.is_none()
            && let Some(peer) = self.ready.pop_first()
        {
            self.running = Running::new(config, peer, mtu);
        }
    }

    /// Waits until the probe that runs has ended, and returns the path if it is narrow. Cancel-safe.
    pub async fn next(&mut self) -> Option<Narrow> {
        let Some(running) = &mut self.running else {
            return pending().await;
        };
        let outcome = running.run().await;
        let peer = running.peer;
        debug!(%peer, mtu = running.mtu, ?outcome, "Probed the path");
        self.running = None;
        self.note(peer, outcome)
    }

    fn note(&mut self, peer: PublicKey, outcome: Outcome) -> Option<Narrow> {
        let key = (peer, self.way(&peer));
        let (target, largest) = match outcome {
            Outcome::Narrow { target, largest } => (target, Some(largest)),
            Outcome::TooNarrow { target } => (target, None),
            Outcome::Fits { .. } => {
                // A limit stays: it may be why the packets fit.
                self.found
                    .retain(|it, narrow| *it != key || narrow.largest.is_some());
                return None;
            }
            Outcome::Unknown => return None,
        };
        let earlier = self.found.get(&key).and_then(|it| it.largest);
        let largest = largest.or(earlier);
        let narrow = Narrow { target, largest };
        self.found.insert(key, narrow);
        Some(narrow)
    }

    fn way(&self, peer: &PublicKey) -> Way {
        self.ways.get(peer).copied().unwrap_or_default()
    }

    /// The narrow paths of the ways that data takes at present.
    fn present(&self) -> impl Iterator<Item = Narrow> {
        let peers: BTreeSet<_> = self.found.keys().map(|(peer, _)| *peer).collect();
        peers.into_iter().filter_map(|peer| {
            let found = |way| self.found.get(&(peer, way)).copied();
            match self.way(&peer) {
                Way::Direct => found(Way::Direct),
                Way::Relay => found(Way::Relay).or_else(|| Some(found(Way::Direct)?.by_relay())),
                Way::Stream => None,
            }
        })
    }

    fn want(&mut self, peer: PublicKey) {
        if self.wanted.len() < MAX_PEERS {
            self.is_changed |= self.wanted.insert(peer);
        }
    }
}

/// The peers with endpoints.
fn candidates(config: &Config) -> impl Iterator<Item = &Peer> {
    let peers = config.peers.iter();
    peers.filter(|peer| !peer.endpoints.is_empty())
}

/// The peers that TURN servers may reach, as many as are probed.
fn relayable(config: &Config) -> BTreeSet<PublicKey> {
    // With an outer tunnel, that one is relayed.
    let has_servers = config.via.is_none() && !config.interface.turns.is_empty();
    let peers = candidates(config).filter(|_| has_servers);
    peers
        .map(|peer| peer.public_key.value)
        .take(MAX_PEERS)
        .collect()
}

/// Stands for the peer's endpoints.
fn digest(peer: &Peer) -> u64 {
    let mut hasher = DefaultHasher::new();
    for endpoint in &peer.endpoints {
        endpoint.value.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

/// The smallest MTU in bytes that the interface can have.
fn floor(config: &Config) -> u32 {
    let mut own = config.interface.addresses.iter();
    let mut allowed = config.peers.iter().flat_map(|peer| &peer.allowed_ips);
    let carries_ipv6 =
        own.any(|it| it.address().is_ipv6()) || allowed.any(|it| it.address().is_ipv6());
    smallest_mtu(carries_ipv6)
}

impl Narrow {
    /// The same path with the header of ChannelData ahead of each datagram.
    fn by_relay(self) -> Self {
        let largest = self.largest.map(|it| it.saturating_sub(CHANNEL_DATA));
        Self { largest, ..self }
    }

    /// Says what is wrong; `mtu` is the interface's by now.
    pub fn text(&self, mtu: u32) -> String {
        let target = self.target;
        match self.largest {
            Some(largest) if mtu > largest => format!(
                "packets larger than {largest} bytes do not reach {target}, and the MTU is still {mtu}: it could \
                 not be lowered (see the log)"
            ),
            Some(largest) => {
                format!(
                    "packets larger than {largest} bytes do not reach {target}: the MTU is {mtu} now"
                )
            }
            None => format!(
                "large packets do not reach {target}, not even those of the smallest MTU possible: the MTU \
                 stays {mtu}"
            ),
        }
    }
}

impl Running {
    /// `None` if there is nothing to probe.
    fn new(config: &Config, peer: PublicKey, mtu: u32) -> Option<Self> {
        let targets = targets(config, &peer);
        debug!(%peer, mtu, ?targets, "Probing the path");
        let probe = Probe::new(targets, mtu, floor(config), Instant::now())?;
        let echoes = Echoes::new(config.name.as_str());
        let echoes = echoes.inspect_err(|error| debug!("cannot probe the path: {error}"));
        Some(Self {
            peer,
            mtu,
            probe,
            echoes: echoes.ok()?,
        })
    }

    /// Runs the probe to its end. Cancel-safe.
    async fn run(&mut self) -> Outcome {
        loop {
            while let Some(transmit) = self.probe.poll_transmit() {
                if let Err(error) = self.echoes.send(&transmit) {
                    debug!(to = %transmit.to, "cannot send an echo request: {error}");
                    self.probe.handle_refused(Instant::now());
                }
            }
            if let Some(outcome) = self.probe.poll_outcome() {
                return outcome;
            }
            let due = self.probe.poll_timeout();
            tokio::select! {
                answer = self.echoes.next() => {
                    let (from, sequence) = (answer.from, answer.sequence);
                    self.probe.handle_answer(from, sequence, Instant::now());
                }
                () = until(due) => self.probe.handle_timeout(Instant::now()),
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => pending().await,
    }
}
