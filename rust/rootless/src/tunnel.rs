//! A tunnel process over an engine's device, and the addresses of its peers.

use std::time::Instant;

use convoy_config::Config;
use convoy_daemon::{args::TunnelOptions, places::Sockets};
use convoy_desired::{configured_mark, whole};
use convoy_endpoints::Addresses;
use convoy_keeper::{KeptEvent, KeptTunnel, tunnel::TunnelEvent};
use convoy_lifecycle::Effect;
use convoy_proto::{Outcome, config::DeviceUpdate};
use convoy_report::Report;
use convoy_status::Known;
use nix::unistd::{Pid, geteuid};
use tracing::{error, warn};

use super::engine::Engine;

/// A tunnel that is kept up.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) config: Config,
    mark: Option<u32>,
    addresses: Addresses,
    kept: KeptTunnel,
}

impl Tunnel {
    /// Starts the process and configures it, with an interface of `mtu` bytes. May be cancelled.
    pub(super) async fn start(
        config: Config,
        engine: &Engine,
        mtu: u16,
        options: &TunnelOptions,
        sockets: &Sockets,
    ) -> anyhow::Result<Self> {
        let mark = configured_mark(&config).filter(|_| geteuid().is_root());
        let device = engine.device()?;
        let kept = KeptTunnel::over(device, mtu, &config.name, options, sockets.clone()).await?;
        let mut tunnel = Self {
            addresses: Addresses::new(&config, mark),
            config,
            mark,
            kept,
        };
        tunnel.follow_addresses().await;
        tunnel.addresses.settle().await;
        match tunnel.configure().await {
            Ok(()) => Ok(tunnel),
            Err(error) => {
                // The first failure matters more than its consequences.
                drop(tunnel.stop().await);
                Err(error)
            }
        }
    }

    /// Waits for the next event of the process; `None` if addresses are due to be followed. May be cancelled.
    pub(super) async fn next(&mut self) -> Option<KeptEvent> {
        tokio::select! {
            event = self.kept.next() => Some(event),
            () = self.addresses.next() => None,
        }
    }

    /// Performs an effect that concerns the process.
    pub(super) async fn perform(&mut self, effect: Effect) {
        match effect {
            // Nothing on the host depends on the mark.
            Effect::FollowMark { id, fwmark } => {
                self.kept.perform(Effect::AllowMark { id, fwmark }).await;
            }
            Effect::ConfigureAgain => {
                if let Err(error) = self.configure().await {
                    error!("cannot configure the tunnel that was started again: {error:#}");
                }
            }
            effect => self.kept.perform(effect).await,
        }
    }

    /// Follows handshakes; nothing on the host depends on the rest.
    pub(super) fn on_event(&mut self, event: &TunnelEvent) {
        if let TunnelEvent::Handshake { peer, outcome } = event {
            let answered = *outcome == Outcome::Answered;
            self.addresses.handshake(peer, answered, Instant::now());
        }
    }

    /// Gives the tunnel process its whole configuration.
    async fn configure(&mut self) -> anyhow::Result<()> {
        let Some(process) = self.kept.process() else {
            return Ok(());
        };
        let addresses = &self.addresses;
        let update = DeviceUpdate {
            // Only root may clear a mark, and there is none to clear.
            fwmark: self.mark,
            ..whole(&self.config, self.mark, |peer| addresses.of(peer))
        };
        process.allow(self.mark.unwrap_or(0));
        process.set(&update).await?;
        process.follow(&addresses.followed()).await
    }

    /// Starts due look-ups, and passes changed addresses on to the tunnel.
    pub(super) async fn follow_addresses(&mut self) {
        let changes = self.addresses.changes(Instant::now());
        let Some(process) = self.kept.process() else {
            return;
        };
        let told = async {
            if !changes.peers.is_empty() {
                let update = DeviceUpdate {
                    peers: changes.peers,
                    ..DeviceUpdate::default()
                };
                process.set(&update).await?;
            }
            match changes.handshakes.is_empty() {
                true => Ok(()),
                false => process.handshake(&changes.handshakes).await,
            }
        };
        if let Err(error) = told.await {
            // A tunnel that has died gets all addresses when it starts again.
            warn!("cannot give the tunnel new addresses: {error:#}");
        }
    }

    /// Records that the host has slept and may be in another network.
    pub(super) fn look_again(&mut self) {
        self.addresses.network_changed(Instant::now());
    }

    /// Returns the process's number while there is one.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.kept.pid()
    }

    /// Returns the number of times that the process has died.
    pub(super) fn deaths(&self) -> u64 {
        self.kept.deaths()
    }

    /// Returns the process's report; `None` while there is none.
    pub(super) async fn report(&mut self) -> Option<anyhow::Result<Report>> {
        Some(self.kept.process()?.report().await)
    }

    /// Returns facts about the peers that the process does not know.
    pub(super) fn known(&self) -> Known {
        Known::new(&self.config, self.addresses.problems(&self.config))
    }

    /// Ends the process.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.kept.stop().await.map(drop)
    }
}
