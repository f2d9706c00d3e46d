//! Follows what changes by itself: the peers' addresses, and the tunnel's process.

use std::time::Instant;

use convoy_proto::config::DeviceUpdate;
use tracing::{error, warn};

use super::Supervisor;
use crate::client::{addresses::Changes, desired::desired, kept::KeptTunnel};

impl Supervisor {
    /// Starts due look-ups, and tells the tunnel and the host which addresses have changed.
    pub(super) async fn follow_addresses(&mut self) {
        let changes = self.addresses.changes(Instant::now());
        let has_moved = !changes.peers.is_empty();
        if let Err(error) = self.tell_tunnel(changes).await {
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

    /// Makes the host match the configuration, the mark and the addresses.
    pub(super) async fn apply(&mut self) -> anyhow::Result<()> {
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let desired = desired(&self.config, self.mark, self.addresses.all())?;
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
