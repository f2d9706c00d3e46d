//! Takes a tunnel down, whoever brought it up and however far it got.

use anyhow::{Context, anyhow};
use convoy_config::{Config, InterfaceName};
use convoy_host::{Host, open_kill_switch};
use tracing::{error, warn};

use super::{
    desired::kill_switch,
    hooks::{Hooks, Moment},
    kept::{KeptEvent, KeptTunnel, adopt, remove_dead_sockets, remove_sockets},
    save,
    state::State,
    terminal::Terminal,
    tunnel::TunnelEvent,
};

/// Returns what stays on the host after a tunnel with this configuration went down.
pub(crate) fn stays(config: &Config) -> Vec<String> {
    let name = &config.name;
    let switch = kill_switch(&config.interface).filter(|switch| switch.persistent);
    let note = switch.map(|_| {
        format!("the kill switch of {name} stays closed: `convoy down {name} --open-kill-switch` opens it")
    });
    note.into_iter().collect()
}

/// All that is known of a tunnel that is to go.
#[derive(Debug)]
pub(crate) struct TakeDown {
    pub(crate) name: InterfaceName,
    /// `None` if it cannot be read any more: then no hook runs.
    pub(crate) config: Option<Config>,
    /// `None` once the interface has left this network namespace.
    pub(crate) host: Option<Host>,
    pub(crate) tunnel: Option<KeptTunnel>,
    /// Whether a hook may have run.
    pub(crate) hooks_begun: bool,
    /// Whether the tunnel was brought up completely.
    pub(crate) is_up: bool,
    /// The mark that was chosen for it.
    pub(crate) picked_mark: Option<u32>,
    /// Whether any kill switch stays, since the tunnel is to come up again.
    pub(crate) keeps_kill_switch: bool,
    pub(crate) terminal: Option<Terminal>,
}

impl TakeDown {
    /// Undoes everything, in the reverse order of `up`; returns what its user must know. What fails does not stop
    /// the rest.
    ///
    /// # Errors
    /// All that failed.
    pub(crate) async fn run(mut self) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        let mut said = Vec::new();
        let mut note = |outcome: anyhow::Result<()>| {
            if let Err(failure) = outcome {
                error!("{failure:#}");
                failures.push(format!("{failure:#}"));
            }
        };
        if self.is_up {
            note(self.hooks(Moment::PreDown).await);
            note(self.save().await.map(|it| said.extend(it)));
            self.note_end();
        }
        // Open until everything else is undone.
        let mut interface = None;
        note(match self.tunnel.take() {
            Some(tunnel) => tunnel.stop().await.map(|tun| interface = Some(tun)),
            None => stop_orphan(&self.name).await,
        });
        note(self.undo_host().await);
        drop(interface);
        if self.is_up || self.hooks_begun {
            note(self.hooks(Moment::PostDown).await);
        }
        // Without the configuration, as after a crash under systemd, which keeps credentials to the start, the
        // next `up` runs the hooks.
        if self.config.is_some() || !self.keeps_kill_switch {
            State::remove(&self.name);
        }
        match failures.is_empty() {
            true => Ok(said),
            false => {
                failures.extend(said);
                Err(anyhow!("{}", failures.join("\n")))
            }
        }
    }

    async fn undo_host(&mut self) -> anyhow::Result<()> {
        let Some(host) = self.host.take() else {
            // It was let go when the interface left, and its kill switch stayed.
            let config = self.config.as_ref();
            let switch = config.and_then(|config| kill_switch(&config.interface));
            return match switch {
                Some(switch) if !switch.persistent && !self.keeps_kill_switch => {
                    Ok(open_kill_switch(self.name.as_str()).await?)
                }
                _ => Ok(()),
            };
        };
        match self.keeps_kill_switch {
            true => host.release().await?,
            false => host.undo().await?,
        }
        Ok(())
    }

    /// Runs hooks, whose questions to the tunnel are answered meanwhile.
    async fn hooks(&mut self, moment: Moment) -> anyhow::Result<()> {
        let Some(config) = &self.config else {
            return Ok(());
        };
        let hooks = Hooks::of(config, moment, self.terminal.as_ref());
        if hooks.is_empty() {
            return Ok(());
        }
        let mut running = std::pin::pin!(hooks.run());
        loop {
            let tunnel = &mut self.tunnel;
            tokio::select! {
                outcome = &mut running => return Ok(outcome?),
                event = next(tunnel) => allow(tunnel, event).await,
            }
        }
    }

    /// Saves the running state, if the configuration asks for it; returns what is to be said about it.
    async fn save(&mut self) -> anyhow::Result<Option<String>> {
        let Some(config) = &self.config else {
            return Ok(None);
        };
        let is_wanted = config.interface.save_config.as_ref();
        if !is_wanted.is_some_and(|wanted| wanted.value) {
            return Ok(None);
        }
        let source = config.source.as_deref();
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            source.inspect(|source| source.remove_unfinished());
            return Ok(None);
        };
        if let Some(source) = source
            && let Some(uid) = source.foreign_owner()
        {
            return Ok(Some(format!(
                "the configuration is not saved: {} belongs to user {uid}, neither to root nor to the caller",
                source.path().display()
            )));
        }
        let running = process.device().await;
        let running =
            running.context("cannot save the configuration: the tunnel does not answer")?;
        save::write(&save::saved(config, &running, self.picked_mark))
    }

    /// Makes the next process run only the hooks that are still to come, should this one be killed.
    fn note_end(&self) {
        let config = self.config.as_ref();
        let has_hooks = config.is_some_and(|config| config.interface.has_hooks());
        if has_hooks && let Err(error) = State::note_end(&self.name) {
            warn!("{error:#}");
        }
    }
}

/// Ends a tunnel process that nobody supervises, if there is one.
async fn stop_orphan(name: &InterfaceName) -> anyhow::Result<()> {
    match adopt(name).await? {
        Some(adopted) => {
            adopted.process.stop().await?;
            remove_sockets(name);
        }
        None => remove_dead_sockets(name),
    }
    Ok(())
}

async fn next(tunnel: &mut Option<KeptTunnel>) -> KeptEvent {
    match tunnel {
        Some(tunnel) => tunnel.next().await,
        None => std::future::pending().await,
    }
}

/// Allows everything: a tunnel that goes down needs no rules any more.
async fn allow(tunnel: &mut Option<KeptTunnel>, event: KeptEvent) {
    let Some(kept) = tunnel else { return };
    match event {
        KeptEvent::Tunnel(TunnelEvent::Asks { id, fwmark, .. }) => {
            if let Some(process) = kept.process()
                && let Err(error) = process.answer(id, fwmark, None).await
            {
                warn!("cannot answer the tunnel: {error:#}");
            }
        }
        KeptEvent::Tunnel(
            TunnelEvent::Changed | TunnelEvent::Handshake { .. } | TunnelEvent::Moved { .. },
        ) => {}
        // Nothing more comes from it.
        KeptEvent::Tunnel(TunnelEvent::Ended { .. } | TunnelEvent::Died)
        | KeptEvent::StartDue
        | KeptEvent::Started => {
            kept.finish().await;
        }
    }
}
