//! Follows the port mapping that the router is asked for, and its answers.

use convoy_desired::wants_port_map;
use convoy_keeper::KeptTunnel;
use convoy_portmap::{Mapping, withdraw};
use tracing::{debug, warn};

use super::Supervisor;
use crate::state::State;

impl Supervisor {
    /// Starts or stops the forwarding of the tunnel's port, as the configuration says. Does not wait for the router.
    pub(super) async fn follow_port_map(&mut self) {
        let before = self.port_map.external();
        let mapping = match wants_port_map(&self.config) {
            true => {
                self.find_port().await;
                let former = self.state.mapping();
                self.port_map.keep(self.mark, former);
                self.port_map.to_note(former)
            }
            false => {
                self.port_map.end(self.state.mapping());
                None
            }
        };
        self.note_port_mapping(mapping);
        if self.port_map.external() != before {
            self.follow_directs().await;
        }
    }

    /// Passes the router's answer on to the tunnel.
    pub(super) async fn on_port_mapping(&mut self) {
        self.port_map.log();
        self.follow_directs().await;
    }

    /// Adopts the mapping of an earlier supervisor or, if none is configured any more, ends it while that supervisor's
    /// kill switch is still there.
    pub(super) async fn inherit_mapping(&mut self) {
        let earlier = self.earlier.as_ref();
        let Some(mapping) = earlier.and_then(State::mapping).cloned() else {
            return;
        };
        match wants_port_map(&self.config) {
            true => self.state.note_mapping(Some(mapping)),
            false => withdraw(&mapping).await,
        }
    }

    async fn find_port(&mut self) {
        if !self.port_map.lacks_port() {
            return;
        }
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return;
        };
        match process.device().await {
            Ok(device) => self.port_map.note_port(device.listen_port),
            // The process has died, or hangs.
            Err(error) => debug!("cannot look at the tunnel's port: {error:#}"),
        }
    }

    /// Records the mapping for a later process that takes the tunnel down or over.
    pub(super) fn note_port_mapping(&mut self, mapping: Option<Mapping>) {
        if mapping.as_ref() == self.state.mapping() {
            return;
        }
        self.state.note_mapping(mapping);
        if let Err(error) = self.state.write(&self.config.name) {
            warn!("{error:#}");
        }
    }
}
