//! STUN servers of a configuration.

use convoy_config::{Config, Endpoint};

/// Whether any peer of a file is to be reached by a direct path.
pub fn has_directs(config: &Config) -> bool {
    config.peers.iter().any(|peer| !peer.directs.is_empty())
}

/// Returns the STUN servers of a file; without a direct peer, they are not asked.
pub fn servers_of(config: &Config) -> impl Iterator<Item = &Endpoint> {
    let servers = config.interface.stun.iter().map(|it| &it.value);
    servers.filter(|_| has_directs(config))
}
