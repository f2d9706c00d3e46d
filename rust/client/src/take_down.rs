//! The place of a tunnel that is going down, whoever brought it up and however far it got.

use std::os::fd::OwnedFd;

use anyhow::Context;
use convoy_config::{Config, InterfaceName};
use convoy_desired::kill_switch;
use convoy_host::{Host, Lock, open_kill_switch};
use convoy_keeper::{
    KeptEvent, KeptTunnel, adopt, next_of, remove_dead_sockets, remove_sockets,
    tunnel::{Adopted, RunningDevice},
};
use convoy_lifecycle::{Effect, Event, KillSwitch, Moment, State as Life, Step};
use convoy_portmap::{ForwardedPort, Mapping, withdraw, withdraw_port};
use convoy_process::terminal::Terminal;
use convoy_supervision::{Place, Progress, control::Asked};
use tracing::{error, warn};

use super::{
    changed::was_edited, hooks::Hooks, lock::lock, port_forward::for_hooks, save, state::State,
};

/// Returns remarks on what stays on the host once a tunnel with this configuration is down.
pub(crate) fn stays(config: &Config) -> Vec<String> {
    let name = &config.name;
    let switch = kill_switch(&config.interface).filter(|switch| switch.persistent);
    let note = switch.map(|_| {
        format!("the kill switch of {name} stays closed: `convoy down {name} --open-kill-switch` opens it")
    });
    note.into_iter().collect()
}

/// Everything known about a tunnel that is to be taken down.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) name: InterfaceName,
    /// `None` if it can no longer be read: then no hook runs.
    pub(crate) config: Option<Config>,
    /// `None` once the interface has left this network namespace.
    pub(crate) host: Option<Host>,
    /// Lock of the tunnel through which this one goes.
    pub(crate) outer_lock: Option<Lock>,
    pub(crate) tunnel: Option<KeptTunnel>,
    /// The tunnel that a dead supervisor left, once it has been asked for its state.
    pub(crate) orphan: Option<Adopted>,
    /// The interface, which stays until everything else is undone.
    pub(crate) interface: Option<OwnedFd>,
    /// The port that the router forwards.
    pub(crate) port_mapping: Option<Mapping>,
    /// The port that a provider forwards through the tunnel.
    pub(crate) port_forward: Option<ForwardedPort>,
    /// The mark that was chosen for it.
    pub(crate) picked_mark: Option<u32>,
    pub(crate) terminal: Option<Terminal>,
}

impl Place for Remains {
    type Happening = KeptEvent;

    fn tunnel_runs(&self) -> bool {
        self.tunnel.as_ref().is_some_and(KeptTunnel::is_running)
    }

    async fn step(&mut self, step: Step) -> anyhow::Result<Progress> {
        let taken = self.take(step).await;
        taken.inspect_err(|failure| error!("{failure:#}"))
    }

    async fn perform(
        &mut self,
        effect: Effect,
        _state: &Life,
        _asked: &mut Option<Asked>,
    ) -> Option<Event> {
        self.tunnel.as_mut()?.perform(effect).await;
        None
    }

    async fn next(&mut self, _state: &Life) -> KeptEvent {
        next_of(&mut self.tunnel).await
    }

    async fn react(&mut self, event: KeptEvent, _state: &Life) -> Option<Event> {
        // On the way down, the kill switch makes no difference.
        event.decided(KillSwitch::Off).ok()
    }
}

impl Remains {
    async fn take(&mut self, step: Step) -> anyhow::Result<Progress> {
        match step {
            Step::Hooks(moment) => return Ok(self.hooks(moment)),
            Step::Save => {
                let notes = self.save().await?.into_iter().collect();
                return Ok(Progress::Ended(Event::Done(notes)));
            }
            Step::NoteEnd => self.note_end(),
            Step::StopTunnel => {
                if let Some(mapping) = self.port_mapping.take() {
                    withdraw(&mapping).await;
                }
                if let Some(port) = &self.port_forward {
                    withdraw_port(port).await;
                }
                match self.tunnel.take() {
                    Some(tunnel) => self.interface = Some(tunnel.stop().await?),
                    None => self.stop_orphan().await?,
                }
            }
            Step::UndoHost { keeps_kill_switch } => {
                let undone = self.undo_host(keeps_kill_switch).await;
                self.interface = None;
                if let Some(outer) = self.outer_lock.take() {
                    outer.release()?;
                }
                undone?;
            }
            Step::ForgetState => State::remove(&self.name),
            Step::OpenKillSwitch => open_kill_switch(self.name.as_str()).await?,
            // A step on the way up.
            _ => {}
        }
        Progress::done()
    }

    async fn undo_host(&mut self, keeps_kill_switch: bool) -> anyhow::Result<()> {
        let Some(host) = self.host.take() else {
            return self.undo_released(keeps_kill_switch).await;
        };
        match keeps_kill_switch {
            true => host.close().await?,
            false => host.undo().await?,
        }
        Ok(())
    }

    /// Undoes what stayed when the interface left: the kill switch, which the configuration may not want any more.
    async fn undo_released(&self, keeps_kill_switch: bool) -> anyhow::Result<()> {
        let host = lock(&self.name).await?;
        let config = self.config.as_ref();
        let switch = config.and_then(|config| kill_switch(&config.interface));
        match keeps_kill_switch || switch.is_some_and(|switch| switch.persistent) {
            true => host.close().await?,
            false => {
                host.undo().await?;
                open_kill_switch(self.name.as_str()).await?;
            }
        }
        Ok(())
    }

    /// Runs hooks.
    fn hooks(&self, moment: Moment) -> Progress {
        let config = self.config.as_ref();
        let hooks = config.map(|config| {
            let port = for_hooks(config, self.port_forward.as_ref());
            Hooks::of(config, moment, port, self.terminal.as_ref())
        });
        Progress::Goes(Box::pin(async {
            match hooks {
                Some(hooks) => Ok(hooks.run().await?),
                None => Ok(()),
            }
        }))
    }

    /// Saves the running state if the configuration asks for it; returns remarks for the user.
    async fn save(&mut self) -> anyhow::Result<Option<String>> {
        let Some(config) = &self.config else {
            return Ok(None);
        };
        let is_wanted = config.interface.save_config.as_ref();
        if !is_wanted.is_some_and(|wanted| wanted.value) {
            return Ok(None);
        }
        let source = config.source.clone();
        let Some(running) = self.running().await? else {
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
        self.save_running(&running)
    }

    /// Asks the tunnel's process for its state, whoever started it; `None` if there is none with a configuration.
    async fn running(&mut self) -> anyhow::Result<Option<RunningDevice>> {
        const FAILED: &str = "cannot save the configuration";
        if self.tunnel.is_none() && self.orphan.is_none() {
            self.orphan = adopt(&self.name).await.context(FAILED)?;
        }
        let orphan = self.orphan.as_mut().map(|orphan| &mut orphan.process);
        let kept = self.tunnel.as_mut().and_then(KeptTunnel::process);
        let Some(process) = kept.or(orphan) else {
            return Ok(None);
        };
        let running = process.device().await;
        let running = running.with_context(|| format!("{FAILED}: the tunnel does not answer"))?;
        // An orphan may have been started in place of another, and not have got it.
        let is_configured = self.tunnel.is_some() || running.private_key.is_some();
        Ok(Some(running).filter(|_| is_configured))
    }

    fn save_running(&self, running: &RunningDevice) -> anyhow::Result<Option<String>> {
        let Some(config) = &self.config else {
            return Ok(None);
        };
        if self.tunnel.is_some() {
            return save::write(&save::saved(config, running, self.picked_mark), false);
        }
        // As a supervisor that takes over does, which cannot know who set a mark.
        let is_marked = config.interface.fwmark.is_some();
        let picked_mark = Some(running.fwmark).filter(|_| !is_marked);
        let saved = save::saved(config, running, picked_mark);
        save::write(&saved, was_edited(config))
    }

    /// Ends a tunnel process that has no supervisor, if there is one.
    async fn stop_orphan(&mut self) -> anyhow::Result<()> {
        let orphan = match self.orphan.take() {
            Some(orphan) => Some(orphan),
            None => adopt(&self.name).await?,
        };
        match orphan {
            Some(orphan) => {
                orphan.process.stop().await?;
                remove_sockets(&self.name);
            }
            None => remove_dead_sockets(&self.name),
        }
        Ok(())
    }

    /// Makes sure that, if this process is killed, the next one runs only the remaining hooks.
    fn note_end(&self) {
        let config = self.config.as_ref();
        let has_hooks = config.is_some_and(|config| config.interface.has_hooks());
        if has_hooks && let Err(error) = State::note_end(&self.name) {
            warn!("{error:#}");
        }
    }
}
