//! Requested changes: another configuration, another mark, a pause.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use convoy_config::{Config, SYSTEM_TABLES, difference};
use convoy_desired::{configured_mark, desired, wants_port_map};
use convoy_host::open_kill_switch;
use convoy_keeper::KeptTunnel;
use convoy_lifecycle::{Event, KillSwitch};
use convoy_proto::config::DeviceUpdate;
use convoy_status::seconds;
use tracing::{error, info, warn};

use super::Supervisor;
use crate::{changed, hooks::ensure_hooks_may_run};

impl Supervisor {
    /// Reads the configuration again and applies the difference; returns warnings. An error changes nothing.
    pub(super) async fn reload(&mut self) -> anyhow::Result<Vec<String>> {
        let loaded = convoy_config::read(&self.path);
        let loaded = loaded.map_err(|report| anyhow!("{}", report.render(false)))?;
        ensure_hooks_may_run(&self.path, &loaded.config)?;
        self.ensure_same_outer(&loaded.config)?;
        self.ensure_no_peer_of_both(&loaded.config)?;
        let config = self.without_this_machine(loaded.config);
        let mark = self.mark_for(&config).await?;
        self.change(config, mark).await?;
        changed::note_given(&self.config);
        info!("{} has its new configuration", self.config.name);
        self.events.reloaded(&self.config);
        self.tell_kill_switch().await;
        let read = match loaded.warnings.is_empty() {
            true => None,
            false => Some(loaded.warnings.render(false)),
        };
        Ok(read
            .into_iter()
            .chain(self.applied.warnings.clone())
            .collect())
    }

    /// Returns the mark for a new configuration. A mark set by another program stays until the configured one changes;
    /// a chosen mark stays while it is needed.
    async fn mark_for(&self, new: &Config) -> anyhow::Result<Option<u32>> {
        let configured = configured_mark(new);
        let is_set = self.mark != self.picked_mark;
        let wanted = match configured == configured_mark(&self.config) && is_set {
            true => self.mark,
            false => configured,
        };
        match &self.host {
            Some(host) => {
                let outside = self.addresses.outside(new);
                Ok(host.pick_mark(&desired(new, wanted, outside)).await?)
            }
            // The kill switch that it has left behind still wants it.
            None => Ok(wanted.or(self.picked_mark)),
        }
    }

    /// Applies a new configuration to tunnel and host, or leaves both as they are.
    async fn change(&mut self, new: Config, mark: Option<u32>) -> anyhow::Result<()> {
        let former_mark = self.mark;
        let former = self.become_as(new, mark);
        if let Err(error) = self.set_difference(&former, former_mark).await {
            // The tunnel takes an update as a whole or not at all; these went before it.
            self.become_as(former, former_mark);
            self.follow_outer().await;
            self.follow_directs().await;
            return Err(error);
        }
        let applied = match self.open_released().await {
            Ok(()) => self.apply().await,
            Err(error) => Err(error),
        };
        let Err(error) = applied else {
            return Ok(());
        };
        let mark = self.mark;
        let refused = self.become_as(former, former_mark);
        if let Err(error) = self.set_difference(&refused, mark).await {
            error!("cannot give the tunnel its former configuration: {error:#}");
        }
        if let Err(error) = self.apply().await {
            error!("cannot give the host its former state: {error:#}");
        }
        Err(error)
    }

    /// Opens the kill switch that stayed when the interface left, if it is no longer wanted.
    async fn open_released(&self) -> anyhow::Result<()> {
        if self.host.is_none() && self.kill_switch() == KillSwitch::Off {
            open_kill_switch(self.config.name.as_str()).await?;
        }
        Ok(())
    }

    /// Exchanges the configuration; returns the former one.
    pub(super) fn become_as(&mut self, new: Config, mark: Option<u32>) -> Config {
        let former = std::mem::replace(&mut self.config, new);
        if mark != self.mark {
            self.picked_mark = mark.filter(|_| configured_mark(&self.config) != mark);
        }
        self.mark = mark;
        self.addresses.replace(&self.config, mark, Instant::now());
        self.path_mtu.replace(&former, &self.config);
        former
    }

    async fn set_difference(&mut self, old: &Config, old_mark: Option<u32>) -> anyhow::Result<()> {
        let addresses = &self.addresses;
        let update = DeviceUpdate {
            fwmark: (self.mark != old_mark).then_some(self.mark.unwrap_or(0)),
            ..difference(old, &self.config, |peer| addresses.of(peer))
        };
        let followed = self.followed();
        self.port_map.forget_port();
        if !wants_port_map(&self.config) {
            // The kill switch closes to the router next.
            self.port_map.finish(self.state.mapping()).await;
            self.note_port_mapping(None);
        }
        self.release_directs().await?;
        self.tell_outer().await?;
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            // It gets the whole configuration when it starts again.
            return Ok(());
        };
        process.set(&update).await?;
        process.follow(&followed).await?;
        self.tell_directs().await
    }

    /// Decides about a mark that another program sets on the tunnel: rules and kill switch come first. A port affects
    /// nothing on the host.
    pub(super) async fn on_question(&mut self, id: u64, fwmark: Option<u32>) {
        let refused = match fwmark {
            Some(mark) => self.follow_mark(mark).await.err(),
            None => None,
        };
        if let Some(refused) = &refused {
            warn!("refused another mark: {refused:#}");
        }
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return;
        };
        let refused = refused.map(|refused| format!("{refused:#}"));
        let answer = process.answer(id, fwmark, refused);
        if let Err(error) = answer.await {
            warn!("cannot answer the tunnel: {error:#}");
        }
    }

    async fn follow_mark(&mut self, mark: u32) -> anyhow::Result<()> {
        let former = self.mark;
        let mark = Some(mark).filter(|mark| *mark != 0);
        if mark == former {
            return Ok(());
        }
        let wanted = desired(&self.config, mark, self.addresses.outside(&self.config));
        // A mark is also the number of the tunnel's table.
        if let Some(mark) = mark.filter(|mark| SYSTEM_TABLES.contains(mark)) {
            bail!("{mark} is the number of a table of the system (fix: choose another mark)");
        }
        let is_needed = mark.is_none() && wanted.needs_mark();
        ensure!(
            !is_needed || self.host.is_none(),
            "a default route, a kill switch or networks that hold an endpoint need a firewall mark other than 0"
        );
        self.mark = mark;
        if let Err(error) = self.apply().await {
            self.mark = former;
            if let Err(error) = self.apply().await {
                error!("cannot give the host its former state: {error:#}");
            }
            return Err(error);
        }
        self.picked_mark = None;
        self.addresses.mark(&self.config, mark);
        info!(
            "Rules and kill switch follow the mark {:#x}",
            mark.unwrap_or(0)
        );
        Ok(())
    }

    /// Lets packets out beside the tunnel for a time.
    pub(super) async fn pause(&mut self, seconds: u64) -> anyhow::Result<Option<Event>> {
        let Some(host) = &mut self.host else {
            return Ok(None);
        };
        self.path_mtu.stop();
        let time = Duration::from_secs(seconds);
        host.pause(time).await.context("cannot pause")?;
        let until = SystemTime::now() + time;
        Ok(Some(Event::Paused { seconds, until }))
    }

    /// Ends a pause.
    pub(super) async fn resume(&mut self) -> anyhow::Result<Option<Event>> {
        if let Some(host) = &mut self.host {
            host.resume().await.context("cannot end the pause")?;
        }
        Ok(Some(Event::Resumed))
    }

    /// Records a pause, also for a later process.
    pub(super) fn note_pause(&mut self, until: Option<SystemTime>) {
        self.state.paused_until = until.map(seconds);
        if let Err(error) = self.state.write(&self.config.name) {
            warn!("{error:#}");
        }
    }
}
