//! The supervisor's own facts, for metrics.

use convoy_config::encode_key;
use convoy_keeper::KeptTunnel;
use convoy_lifecycle::State;
use convoy_metrics::Client;

use super::Supervisor;
use crate::port_forward::for_hooks;

impl Supervisor {
    /// Returns the facts that the tunnel's process does not know.
    pub(super) async fn observe(&self, state: &State) -> Client {
        let is_closed = self.is_kill_switch_closed().await;
        let peers = self.config.peers.iter().chain(self.config.outer_peers());
        let names = peers.filter_map(|peer| {
            let key = encode_key(&peer.public_key.value.0);
            Some((key.as_str().to_owned(), peer.friendly_name.clone()?))
        });
        Client {
            names: names.collect(),
            is_kill_switch_closed: is_closed,
            is_paused: state.paused_until().is_some(),
            has_left: state.has_moved(),
            tunnel_deaths: self.tunnel.as_ref().map_or(0, KeptTunnel::deaths),
            port_forwarded: for_hooks(&self.config, self.port_forward.port().as_ref()),
            warnings: self.warnings(is_closed, state).len(),
        }
    }
}
