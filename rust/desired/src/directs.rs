//! Builds the message that tells the tunnel process about direct paths.

use std::net::{IpAddr, SocketAddr};

use convoy_config::Config;
use convoy_daemon::supervised::protocol::{Direct, DirectPaths, Key, Secret};
use convoy_endpoints::has_directs;
use convoy_proto::config::PublicKey;

/// Most inner addresses of this end in one message.
const MOST_INNER_ADDRESSES: usize = 64;
/// Most STUN servers in one message.
const MOST_STUN_SERVERS: usize = 8;

/// Remembers the last message about direct paths that the tunnel process got.
#[derive(Debug, Default)]
pub struct Directs {
    /// Addresses of this machine outside of all tunnels; `None` until somebody has looked.
    hosts: Option<Vec<IpAddr>>,
    /// The address that the router forwards to the tunnel's port.
    mapped: Option<SocketAddr>,
    /// The last message; `None` if the process may have one of an earlier supervisor.
    told: Option<DirectPaths>,
}

impl Directs {
    /// Notes that there is a process which has just started, or which an earlier supervisor has configured.
    pub fn begin(&mut self, is_new: bool) {
        self.told = is_new.then(DirectPaths::default);
    }

    /// Returns whether this machine's addresses matter, and are not known.
    pub fn lacks_hosts(&self, config: &Config) -> bool {
        has_directs(config) && self.hosts.is_none()
    }

    /// Notes this machine's addresses.
    pub fn note_hosts(&mut self, hosts: Vec<IpAddr>) {
        self.hosts = Some(hosts);
    }

    /// Notes the address that the router forwards to the tunnel's port.
    pub fn note_mapped(&mut self, mapped: Option<SocketAddr>) {
        self.mapped = mapped;
    }

    /// Returns what the process is to be told, if it does not know it.
    pub fn news(&self, config: &Config, stun: Vec<SocketAddr>) -> Option<DirectPaths> {
        let hosts = self.hosts.clone().unwrap_or_default();
        let addresses = Outside {
            hosts,
            mapped: self.mapped.into_iter().collect(),
            stun,
        };
        let paths = paths(config, addresses);
        (self.told.as_ref() != Some(&paths)).then_some(paths)
    }

    /// Returns what the process is to be told before it gets the peers of `config`: a key is never both that of a peer
    /// and that of a direct one.
    pub fn before(&self, config: &Config) -> Option<DirectPaths> {
        let mut paths = self.told.clone()?;
        let is_peer = |key: PublicKey| config.peers.iter().any(|it| it.public_key.value == key);
        let former = paths.peers.len();
        paths.peers.retain(|direct| !is_peer(direct.peer.0));
        (paths.peers.len() < former).then_some(paths)
    }

    /// Notes a message that the process got.
    pub fn note_told(&mut self, paths: DirectPaths) {
        self.told = Some(paths);
    }
}

/// Addresses outside of the tunnel.
struct Outside {
    hosts: Vec<IpAddr>,
    mapped: Vec<SocketAddr>,
    stun: Vec<SocketAddr>,
}

/// Words the direct paths of a configuration; without a direct peer, nothing else matters.
fn paths(config: &Config, mut outside: Outside) -> DirectPaths {
    let peers: Vec<_> = config.peers.iter().flat_map(directs_of).collect();
    if peers.is_empty() {
        return DirectPaths::default();
    }
    outside.stun.truncate(MOST_STUN_SERVERS);
    let own = config.interface.addresses.iter().map(|it| it.address());
    DirectPaths {
        own: own.take(MOST_INNER_ADDRESSES).collect(),
        peers,
        hosts: outside.hosts,
        mapped: outside.mapped,
        stun: outside.stun,
    }
}

fn directs_of(hub: &convoy_config::Peer) -> impl Iterator<Item = Direct> + '_ {
    hub.directs.iter().map(|direct| {
        let secret = direct.preshared_key.as_ref();
        Direct {
            peer: Key(direct.public_key.value),
            preshared_key: secret.map(|key| Secret(key.value.clone())),
            hub: Key(hub.public_key.value),
            allowed_ips: direct.allowed_ips.iter().map(|it| it.value).collect(),
        }
    })
}

#[cfg(test)]
mod tests;
