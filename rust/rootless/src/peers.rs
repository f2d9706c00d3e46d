//! Peers by their allowed IPs, for the networks without root.

use convoy_config::Config;
use convoy_network::peers::Peers;

/// Numbers the peers, with their allowed IPs.
pub(super) fn peers_of(config: &Config) -> Peers {
    let numbered = (0..).zip(&config.peers);
    Peers::new(numbered.flat_map(|(number, peer)| {
        let allowed = peer.allowed_ips.iter();
        allowed.map(move |it| (it.value, number))
    }))
}
