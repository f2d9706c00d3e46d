//! Sends the tunnel its direct paths and TURN servers, from the configuration, this machine's addresses and the
//! servers' look-ups.

use std::net::IpAddr;

use convoy_keeper::KeptTunnel;
use tracing::warn;

use super::Supervisor;

impl Supervisor {
    /// Sends the tunnel's process the direct paths and TURN servers that it lacks.
    pub(super) async fn tell_directs(&mut self) -> anyhow::Result<()> {
        if self.directs.lacks_hosts(&self.config)
            && let Some(host) = &mut self.host
        {
            match host.own_addresses().await {
                Ok(hosts) => self.directs.note_hosts(hosts),
                // Direct paths need not begin at one of them.
                Err(error) => warn!("{error}"),
            }
        }
        self.directs.note_mapped(self.port_map.external());
        let stun = self.addresses.stun(&self.config);
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        if let Some(news) = self.directs.news(&self.config, stun) {
            process.tell_directs(&news).await?;
            self.directs.note_told(news);
        }
        let relays = self.addresses.relays(&self.config);
        if let Some(news) = self.relays.news(relays) {
            process.tell_relays(&news).await?;
            self.relays.note_told(news);
        }
        Ok(())
    }

    /// Removes direct peers that are about to become ordinary peers from the tunnel's process.
    pub(super) async fn release_directs(&mut self) -> anyhow::Result<()> {
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        if let Some(paths) = self.directs.before(&self.config) {
            process.tell_directs(&paths).await?;
            self.directs.note_told(paths);
        }
        Ok(())
    }

    /// Follows this machine's addresses.
    pub(super) async fn on_own_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.directs.note_hosts(addresses);
        self.follow_directs().await;
    }

    /// Sends the tunnel changes that nobody asked for.
    pub(super) async fn follow_directs(&mut self) {
        if let Err(error) = self.tell_directs().await {
            // A tunnel that has died gets the message when it starts again.
            warn!("cannot tell the tunnel of direct paths and TURN servers: {error:#}");
        }
    }
}
