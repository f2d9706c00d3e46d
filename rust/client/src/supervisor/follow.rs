//! Follows changes that nobody asked for: the peers' addresses, the paths to them, and the tunnel's process.

use std::{net::SocketAddr, time::Instant};

use convoy_desired::desired;
use convoy_endpoints::Changes;
use convoy_host::Desired;
use convoy_keeper::KeptTunnel;
use convoy_path_mtu::Narrow;
use convoy_proto::config::{DeviceUpdate, PublicKey, RelayTransport};
use convoy_supervision::events::What;
use tracing::{debug, error, warn};

use super::Supervisor;
use crate::changed::Changed;

impl Supervisor {
    /// Starts due look-ups, and passes changed addresses on to the tunnel and the host.
    pub(super) async fn follow_addresses(&mut self) {
        if self.addresses.is_due(Instant::now()) {
            self.follow_resolvers().await;
        }
        let changes = self.addresses.changes(Instant::now());
        let has_other_servers = changes.has_other_servers;
        let has_other_outer = !changes.outer.is_empty();
        let has_moved = !changes.peers.is_empty() || has_other_servers || has_other_outer;
        for peer in &changes.peers {
            self.path_mtu.moved(peer.public_key);
        }
        if has_other_outer {
            self.path_mtu.want_all(&self.config);
            self.outer.move_peers(&changes.outer);
            self.follow_outer().await;
        }
        // Before these handshakes begin.
        let followed = self.follow_handshakes().await;
        if let Err(error) = followed.and(self.tell_tunnel(changes).await) {
            // A tunnel that has died gets all addresses when it starts again.
            warn!("cannot give the tunnel new addresses: {error:#}");
        }
        if has_other_servers {
            self.follow_directs().await;
        }
        if has_moved && let Err(error) = self.apply().await {
            warn!("cannot follow the peers' addresses: {error:#}");
        }
    }

    /// Keeps look-ups outside the tunnel if the name servers to ask have changed.
    async fn follow_resolvers(&mut self) {
        let outside = self.addresses.outside(&self.config);
        if outside.resolvers != self.resolvers
            && let Err(error) = self.apply().await
        {
            warn!("cannot follow the name servers: {error:#}");
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

    /// Makes the tunnel report the handshakes that matter now.
    pub(super) async fn follow_handshakes(&mut self) -> anyhow::Result<()> {
        let is_watched_anew = self.events.take_change();
        if !self.path_mtu.take_change() && !is_watched_anew {
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
        peers.extend(self.events.followed(&self.config));
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Probes the paths that are due. Call it while packets go through the tunnel.
    pub(super) fn probe_paths(&mut self) {
        self.path_mtu.begin(&self.config, self.applied.mtu);
    }

    /// Lowers the MTU to the size that a probe has found.
    pub(super) async fn on_probed(&mut self, narrow: Option<Narrow>) {
        let Some(narrow) = narrow else { return };
        if let Err(error) = self.apply().await {
            warn!("cannot lower the MTU: {error:#}");
            self.look_at_mtu().await;
        }
        warn!("{}", narrow.text(self.applied.mtu));
    }

    /// Fits the MTU to the way that a peer's data takes from now on.
    pub(super) async fn take_way(
        &mut self,
        peer: PublicKey,
        server: Option<SocketAddr>,
        transport: Option<RelayTransport>,
    ) {
        let way = self.relays.way(server, transport);
        let is_limit_new = self.path_mtu.took_way(peer, way);
        if is_limit_new && let Err(error) = self.apply().await {
            warn!("cannot fit the MTU to another way: {error:#}");
            self.look_at_mtu().await;
        }
    }

    /// Forgets measurements of the paths, since the paths have changed.
    pub(super) async fn forget_paths(&mut self) {
        let had_limit = self.path_mtu.network_changed(&self.config);
        if had_limit && let Err(error) = self.apply().await {
            warn!("cannot raise the MTU: {error:#}");
            self.look_at_mtu().await;
        }
    }

    /// After a failure, either the former or the new value may be in effect.
    async fn look_at_mtu(&mut self) {
        let Some(host) = &mut self.host else { return };
        match host.mtu().await {
            Ok(mtu) => self.applied.mtu = mtu,
            Err(error) => warn!("{error}"),
        }
    }

    /// Records measurements of the paths for the next supervisor.
    pub(super) fn note_paths(&mut self) {
        let paths = self.path_mtu.noted(&self.config);
        if paths == self.state.paths {
            return;
        }
        self.state.paths = paths;
        if let Err(error) = self.state.write(&self.config.name) {
            warn!("{error:#}");
        }
    }

    /// Makes the host match the configuration, the mark, the addresses and the paths to them.
    pub(super) async fn apply(&mut self) -> anyhow::Result<()> {
        let Some(host) = &self.host else {
            return Ok(());
        };
        let outside = self.addresses.outside(&self.config);
        self.resolvers.clone_from(&outside.resolvers);
        let mut desired = Desired {
            mtu_at_most: self.path_mtu.limit(),
            ..desired(&self.config, self.mark, outside)
        };
        if self.mark.is_none() && desired.needs_mark() {
            desired.fwmark = host.pick_mark(&desired).await?;
            self.take_mark(desired.fwmark).await?;
        }
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        self.applied = host.apply(&desired).await?;
        Ok(())
    }

    /// Marks the datagrams of a tunnel that needed no mark until one of its networks was found to hold an endpoint.
    async fn take_mark(&mut self, mark: Option<u32>) -> anyhow::Result<()> {
        self.mark = mark;
        self.picked_mark = mark;
        self.addresses.mark(&self.config, mark);
        let update = DeviceUpdate {
            fwmark: mark,
            ..DeviceUpdate::default()
        };
        match self.tunnel.as_mut().and_then(KeptTunnel::process) {
            Some(process) => process.set(&update).await,
            None => Ok(()),
        }
    }

    /// Updates the host's warnings and announces new ones.
    pub(super) fn on_warnings(&mut self, warnings: Vec<String>) {
        let former = std::mem::replace(&mut self.applied.warnings, warnings);
        for warning in &self.applied.warnings {
            if !former.contains(warning) {
                let warning = warning.clone();
                self.events.publish(What::Warning { warning });
            }
        }
    }

    /// Configures a tunnel process that was started in place of a dead one.
    pub(super) async fn configure_again(&mut self) {
        match self.set_up_again().await {
            Ok(()) => warn!(
                "The tunnel process has the configuration of {} again, with what `wg set` had changed",
                self.path.display()
            ),
            Err(error) => {
                error!("cannot configure the tunnel that was started again: {error:#}");
                if let Some(tunnel) = &mut self.tunnel {
                    tunnel.fail(format!("{error:#}")).await;
                }
                return;
            }
        }
        self.port_forward.ask_again();
        self.events.publish(What::TunnelRestarted);
    }

    async fn set_up_again(&mut self) -> anyhow::Result<()> {
        self.configure(true).await?;
        let is_new = self
            .tunnel
            .as_ref()
            .is_some_and(KeptTunnel::is_interface_new);
        if is_new {
            self.apply().await?;
            if let Some(tunnel) = &mut self.tunnel {
                tunnel.interface_is_set_up();
            }
        }
        Ok(())
    }

    /// Records changes that another program has made to the tunnel, for its next process.
    pub(super) async fn note_changes(&mut self) {
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return;
        };
        match process.device().await {
            Ok(running) => self.changed = Some(Changed::now(&self.config, running)),
            // The process has died, or hangs.
            Err(error) => debug!("cannot look at the tunnel: {error:#}"),
        }
    }
}
