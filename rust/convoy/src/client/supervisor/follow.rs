//! Follows what changes by itself: the peers' addresses, the paths to them, and the tunnel's process.

use std::time::Instant;

use convoy_host::Desired;
use convoy_proto::config::{DeviceUpdate, PublicKey};
use tracing::{error, warn};

use super::Supervisor;
use crate::client::{addresses::Changes, desired::desired, kept::KeptTunnel, path_mtu::Narrow};

impl Supervisor {
    /// Starts due look-ups, and tells the tunnel and the host which addresses have changed.
    pub(super) async fn follow_addresses(&mut self) {
        let changes = self.addresses.changes(Instant::now());
        let has_moved = !changes.peers.is_empty();
        for peer in &changes.peers {
            self.path_mtu.moved(peer.public_key);
        }
        // Before these handshakes begin.
        let followed = self.follow_handshakes().await;
        if let Err(error) = followed.and(self.tell_tunnel(changes).await) {
            // A tunnel that has died gets all addresses when it starts again.
            warn!("cannot give the tunnel new addresses: {error:#}");
        }
        if has_moved && let Err(error) = self.apply().await {
            warn!("cannot follow the peers' addresses: {error:#}");
        }
    }

    /// Gives the tunnel other endpoints, then lets it shake hands.
    pub(super) async fn tell_tunnel(&mut self, changes: Changes) -> anyhow::Result<()> {
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        if !changes.peers.is_empty() {
            let update = DeviceUpdate {
                peers: changes.peers,
                ..DeviceUpdate::default()
            };
            process.set(&update).await?;
        }
        if !changes.handshakes.is_empty() {
            process.handshake(&changes.handshakes).await?;
        }
        Ok(())
    }

    /// Has the tunnel report the handshakes that matter by now.
    async fn follow_handshakes(&mut self) -> anyhow::Result<()> {
        if !self.path_mtu.take_change() {
            return Ok(());
        }
        let peers = self.followed();
        match self.tunnel.as_mut().and_then(KeptTunnel::process) {
            Some(process) => process.follow(&peers).await,
            None => Ok(()),
        }
    }

    /// The peers whose handshakes matter, each once.
    pub(super) fn followed(&self) -> Vec<PublicKey> {
        let mut peers = self.addresses.followed();
        peers.extend(self.path_mtu.followed());
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Probes the paths that are due, while packets go through the tunnel.
    pub(super) fn probe_paths(&mut self) {
        if self.paused_until.is_none() && self.host.is_some() {
            self.path_mtu.begin(&self.config, self.applied.mtu);
        }
    }

    /// Lowers the MTU to what a probe has found.
    pub(super) async fn on_probed(&mut self, narrow: Option<Narrow>) {
        let Some(narrow) = narrow else { return };
        if let Err(error) = self.apply().await {
            warn!("cannot lower the MTU: {error:#}");
        }
        warn!("{}", narrow.text(self.applied.mtu));
    }

    /// Forgets what was found of the paths, as these are others.
    pub(super) async fn forget_paths(&mut self) {
        let had_limit = self.path_mtu.network_changed(&self.config);
        if had_limit && let Err(error) = self.apply().await {
            warn!("cannot raise the MTU: {error:#}");
        }
    }

    /// Makes the host match the configuration, the mark, the addresses and the paths to them.
    pub(super) async fn apply(&mut self) -> anyhow::Result<()> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let desired = Desired {
            mtu_at_most: self.path_mtu.limit(),
            ..desired(&self.config, self.mark, self.addresses.all())?
        };
        self.applied = host.apply(&desired).await?;
        Ok(())
    }

    /// Starts another tunnel process in place of one that has died.
    pub(super) async fn start_again(&mut self, now: Instant) {
        let Some(tunnel) = &mut self.tunnel else {
            return;
        };
        if let Err(error) = tunnel.start_again(now).await {
            error!("cannot start the tunnel again: {error:#}");
            return;
        }
        if let Err(error) = self.configure(true).await {
            error!("cannot configure the tunnel that was started again: {error:#}");
        }
    }
}
