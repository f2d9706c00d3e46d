//! Which of its addresses each peer uses, and when names are looked up.
//!
//! Pure: time is a parameter, and look-ups and changes of the tunnel are left to the caller. After each call of
//! a `handle_*`, and when [`Endpoints::poll_timeout`] has passed, the caller does the following:
//!
//! 1. It looks up the names of [`Endpoints::poll_lookup`], and passes each answer to
//!    [`Endpoints::handle_answer`].
//! 2. It sets the endpoints of [`Endpoints::poll_change`] in the tunnel.
//! 3. It begins handshakes with the peers of [`Endpoints::poll_handshake`].
//! 4. If [`Endpoints::take_servers_change`] says so, it tells the tunnel of other STUN and TURN servers.
//!
//! Decisions:
//!
//! - **The first endpoint that is known serves**, in the order of the configuration. Three initiations without
//!   an answer lead to the next address.
//! - **It goes back to the first** when the network changes, and at a handshake after two minutes. If the first
//!   does not answer its first initiation then, the pause until the next trial doubles, up to an hour.
//! - **Names are looked up again** when the network changes and while handshakes are unanswered, those of TURN servers as
//!   well, with pauses from one second to five minutes. Otherwise never: a peer that answers needs no name.

mod choice;
mod lookups;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::Instant,
};

use convoy_config::{Config, Endpoint, Host};
use convoy_proto::config::PublicKey;
use nix::net::if_::if_nametoindex;

use crate::servers::{servers_of, turn_servers_of};
use choice::{Choice, Step};
use lookups::Lookups;

/// Most peers whose handshakes are followed for the servers that relay to them: a server serves no more.
const MOST_FOR_RELAYS: usize = 64;

/// The endpoints of all peers.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// The peers that have an endpoint.
    peers: HashMap<PublicKey, Choice>,
    lookups: Lookups,
    /// Servers that the tunnel asks.
    servers: Vec<Endpoint>,
    /// Names of those that relay to peers which do not answer.
    relay_names: Vec<String>,
    /// Whether a server's name has been found since [`Self::take_servers_change`].
    servers_changed: bool,
    /// Peers whose address the tunnel does not have yet.
    changed: BTreeSet<PublicKey>,
    /// Peers with which a handshake shall begin.
    handshakes: BTreeSet<PublicKey>,
    /// Peers to which nothing is sent outside: they are reached inside another tunnel.
    inside: BTreeSet<PublicKey>,
    /// The index of an interface, by the zone of an address.
    zone_index: fn(&str) -> Option<u32>,
}

impl Endpoints {
    /// The endpoints of this configuration. The addresses that need no look-up are known at once, and are not
    /// reported by [`Self::poll_change`].
    pub(crate) fn new(config: &Config) -> Self {
        Self::with_zones(config, index_of)
    }

    fn with_zones(config: &Config, zone_index: fn(&str) -> Option<u32>) -> Self {
        let mut endpoints = Self {
            peers: HashMap::new(),
            lookups: Lookups::default(),
            servers: Vec::new(),
            relay_names: Vec::new(),
            servers_changed: false,
            changed: BTreeSet::new(),
            handshakes: BTreeSet::new(),
            inside: BTreeSet::new(),
            zone_index,
        };
        endpoints.take(config);
        endpoints
    }

    /// Takes over a new configuration. Peers whose endpoints are the same keep their address; those of the
    /// others are not reported by [`Self::poll_change`] if they are known. Names that were not found are looked
    /// up again.
    pub(crate) fn replace(&mut self, config: &Config, now: Instant) {
        self.take(config);
        self.lookups.retry(now);
    }

    fn take(&mut self, config: &Config) {
        let mut former = std::mem::take(&mut self.peers);
        self.lookups.forget_users();
        let outer = config.outer_peers();
        self.inside.clear();
        if !outer.is_empty() {
            let inside = config.peers.iter().map(|peer| peer.public_key.value);
            self.inside.extend(inside);
        }
        for peer in config.peers.iter().chain(outer) {
            let key = peer.public_key.value;
            let endpoints: Vec<_> = peer.endpoints.iter().map(|it| it.value.clone()).collect();
            for name in endpoints.iter().filter_map(name_of) {
                self.lookups.add_user(name, key);
            }
            if !endpoints.is_empty() {
                let kept = former.remove(&key).filter(|it| it.endpoints == endpoints);
                let choice = kept.unwrap_or_else(|| Choice::new(endpoints));
                self.peers.insert(key, choice);
            }
        }
        self.servers = servers_of(config).cloned().collect();
        for name in self.servers.iter().filter_map(name_of) {
            self.lookups.add_server(name);
        }
        let relay_names = turn_servers_of(config).filter_map(name_of);
        self.relay_names = relay_names.map(str::to_owned).collect();
        self.lookups.forget_unused();
        for choice in self.peers.values_mut().filter(|it| it.address().is_none()) {
            choice.update(candidates(choice, &self.lookups, self.zone_index), false);
        }
        let peers = &self.peers;
        self.changed.retain(|key| peers.contains_key(key));
        self.handshakes.retain(|key| peers.contains_key(key));
    }

    /// The peers whose handshakes matter: those with a name or several endpoints, and [`MOST_FOR_RELAYS`] others if the
    /// servers that relay to them have names.
    pub(crate) fn followed(&self) -> Vec<PublicKey> {
        let all = self.peers.iter().map(|(key, it)| (*key, it.may_change()));
        let (changing, others): (Vec<_>, Vec<_>) = all.partition(|(_, may_change)| *may_change);
        let mut others: Vec<_> = others.into_iter().map(|(key, _)| key).collect();
        others.retain(|key| self.has_named_relays(key));
        others.sort_unstable();
        others.truncate(MOST_FOR_RELAYS);
        let mut keys: Vec<_> = changing.into_iter().map(|(key, _)| key).collect();
        keys.extend(others);
        keys.sort_unstable();
        keys
    }

    /// The peer's address for now.
    pub(crate) fn address_of(&self, peer: &PublicKey) -> Option<SocketAddr> {
        self.peers.get(peer)?.address()
    }

    /// Returns whether the peer is reached inside another tunnel.
    pub(crate) fn is_inside(&self, peer: &PublicKey) -> bool {
        self.inside.contains(peer)
    }

    /// The IP addresses of all peers for now, but not of those that are reached inside another tunnel.
    pub(crate) fn all(&self) -> Vec<IpAddr> {
        let outside = self.peers.iter().filter(|(key, _)| !self.is_inside(key));
        let addresses = outside.filter_map(|(_, choice)| choice.address());
        let distinct: BTreeSet<_> = addresses.map(|address| address.ip()).collect();
        distinct.into_iter().collect()
    }

    /// The addresses of all servers that are known.
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        self.of_servers(&self.servers)
    }

    /// The addresses of some of the servers that are known, one of each family, without repetitions.
    pub(crate) fn of_servers<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a Endpoint>,
    ) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for Endpoint { host, port } in servers {
            let known: &[IpAddr] = match host {
                Host::Ip(address) => std::slice::from_ref(address),
                Host::Name(name) => self.lookups.addresses_of(name).unwrap_or_default(),
                Host::Zoned(..) => &[],
            };
            let of = |ipv6| known.iter().find(|address| address.is_ipv6() == ipv6);
            let found = [of(true), of(false)].into_iter().flatten();
            for server in found.map(|address| SocketAddr::new(*address, *port)) {
                if !all.contains(&server) {
                    all.push(server);
                }
            }
        }
        all
    }

    /// Returns whether a server's name has been found since the last call.
    pub(crate) fn take_servers_change(&mut self) -> bool {
        std::mem::take(&mut self.servers_changed)
    }

    /// Returns why servers have no address, as for [`Self::problem_of`].
    pub(crate) fn problems_of_servers(&self) -> impl Iterator<Item = &str> {
        let names = self.servers.iter().filter_map(name_of);
        names.filter_map(|name| self.lookups.problem_of(name))
    }

    /// Returns whether the name of a peer is being looked up.
    pub(crate) fn awaits_peers(&self) -> bool {
        self.lookups.awaits_peers()
    }

    /// Returns why an endpoint of the peer has no address, such as "name not found: vpn.example.org".
    pub(crate) fn problem_of(&self, peer: &PublicKey) -> Option<&str> {
        let mut names = self.peers.get(peer)?.endpoints.iter().filter_map(name_of);
        names.find_map(|name| self.lookups.problem_of(name))
    }

    /// Call when a handshake of the peer has completed, or got no answer within five seconds.
    pub(crate) fn handle_handshake(&mut self, peer: &PublicKey, answered: bool, now: Instant) {
        let tries_relays = self.has_named_relays(peer);
        let Some(choice) = self.peers.get_mut(peer) else {
            return;
        };
        if tries_relays && !answered {
            // The pauses go on growing: only a peer that answers says nothing about the servers.
            let names = &self.relay_names;
            names
                .iter()
                .for_each(|name| self.lookups.handle_failure(name, now));
        }
        for name in choice.endpoints.iter().filter_map(name_of) {
            match answered {
                true => self.lookups.handle_success(name),
                false => self.lookups.handle_failure(name, now),
            }
        }
        let step = match answered {
            true => choice.handle_answered(now),
            false => choice.handle_unanswered(now),
        };
        self.do_step(*peer, step);
    }

    /// Call when datagrams leave by another way than before, and when the machine has woken up.
    pub(crate) fn handle_network_changed(&mut self, now: Instant) {
        self.lookups.handle_network_changed(now);
        for (key, choice) in &mut self.peers {
            let before = choice.address();
            choice.start_over(candidates(choice, &self.lookups, self.zone_index));
            let Some(address) = choice.address() else {
                continue;
            };
            // The peer may have roamed; those with one endpoint stay where they are.
            if choice.may_change() || before != Some(address) {
                self.changed.insert(*key);
            }
            self.handshakes.insert(*key);
        }
    }

    /// Takes the answer to a look-up: addresses in order of preference, or the reason why there are none.
    pub(crate) fn handle_answer(
        &mut self,
        name: &str,
        answer: Result<Vec<IpAddr>, String>,
        now: Instant,
    ) {
        let is_found = self.lookups.handle_answer(name, answer, now);
        let mut servers = self.servers.iter().filter_map(name_of);
        self.servers_changed |= is_found && servers.any(|it| it == name);
        for key in self.lookups.users_of(name).to_vec() {
            if let Some(choice) = self.peers.get_mut(&key) {
                let known = candidates(choice, &self.lookups, self.zone_index);
                let step = choice.update(known, is_found);
                self.do_step(key, step);
            }
        }
    }

    /// A name to look up now. It may be one whose last look-up has no answer yet, as the network has changed.
    pub(crate) fn poll_lookup(&mut self, now: Instant) -> Option<String> {
        self.lookups.poll(now)
    }

    /// A peer and the address that the tunnel should use from now on.
    pub(crate) fn poll_change(&mut self) -> Option<(PublicKey, SocketAddr)> {
        loop {
            let peer = self.changed.pop_first()?;
            if let Some(address) = self.address_of(&peer) {
                return Some((peer, address));
            }
        }
    }

    /// A peer with which a handshake shall begin at once.
    pub(crate) fn poll_handshake(&mut self) -> Option<PublicKey> {
        self.handshakes.pop_first()
    }

    /// When [`Self::poll_lookup`] has another name, unless something happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.lookups.next()
    }

    /// Returns whether servers with names may relay to the peer.
    fn has_named_relays(&self, peer: &PublicKey) -> bool {
        !self.relay_names.is_empty() && !self.is_inside(peer)
    }

    fn do_step(&mut self, peer: PublicKey, step: Step) {
        if step != Step::Stay {
            self.changed.insert(peer);
        }
        if step == Step::MoveAndShakeHands {
            self.handshakes.insert(peer);
        }
    }
}

/// The addresses of all endpoints that are known so far, in order of preference.
fn candidates(
    choice: &Choice,
    lookups: &Lookups,
    zone_index: fn(&str) -> Option<u32>,
) -> Vec<SocketAddr> {
    let mut candidates = Vec::new();
    for Endpoint { host, port } in &choice.endpoints {
        match host {
            Host::Ip(address) => candidates.push(SocketAddr::new(*address, *port)),
            Host::Zoned(address, zone) => {
                let index = zone_index(zone);
                let address = index.map(|index| SocketAddrV6::new(*address, *port, 0, index));
                candidates.extend(address.map(SocketAddr::V6));
            }
            Host::Name(name) => match lookups.addresses_of(name) {
                Some(known) => {
                    candidates.extend(known.iter().map(|ip| SocketAddr::new(*ip, *port)))
                }
                // A less preferred endpoint waits for the answer, which takes seconds at most.
                None => break,
            },
        }
    }
    candidates
}

fn name_of(endpoint: &Endpoint) -> Option<&str> {
    match &endpoint.host {
        Host::Name(name) => Some(name),
        Host::Ip(_) | Host::Zoned(..) => None,
    }
}

fn index_of(zone: &str) -> Option<u32> {
    zone.parse().ok().or_else(|| if_nametoindex(zone).ok())
}
