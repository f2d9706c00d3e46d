//! Peers by their allowed IPs, for the networks without root.

use convoy_config::Config;
use convoy_netstack::{Prefix, nat::Peers};
use convoy_proto::config::AllowedIp;

/// Numbers the peers, with their allowed IPs.
pub(super) fn peers_of(config: &Config) -> Peers {
    let numbered = (0..).zip(&config.peers);
    Peers::new(numbered.flat_map(|(number, peer)| {
        let allowed = peer.allowed_ips.iter();
        allowed.filter_map(move |it| Some((prefix(&it.value)?, number)))
    }))
}

/// Takes the prefix of allowed IPs.
pub(super) fn prefix(it: &AllowedIp) -> Option<Prefix> {
    Prefix::new(it.address, it.prefix)
}
