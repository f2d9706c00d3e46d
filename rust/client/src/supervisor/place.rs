//! The host as the place of a tunnel: what each effect does there, and what happens there.

use std::future::pending;

use convoy_host::{Event as HostEvent, Host, HostError, owner};
use convoy_keeper::{KeptEvent, KeptTunnel, next_of};
use convoy_lifecycle::{Effect, Event, Moment, State, Step};
use convoy_path_mtu::Narrow;
use convoy_supervision::{Place, Progress, control::Asked};
use tracing::{info, warn};

use super::{Supervisor, react::answer};
use crate::{
    hooks::{Hooks, strays},
    metrics::{Question, next_question},
    port_forward,
};

/// An event of the tunnel or its host.
pub(super) enum Happening {
    Host(Result<HostEvent, HostError>),
    Tunnel(KeptEvent),
    /// Metrics are asked for.
    Question(Question),
    /// A look-up has ended, or is due.
    Addresses,
    Probed(Option<Narrow>),
    /// The router forwards the port, or no longer does.
    PortMapping,
    /// The provider forwards a port, or no longer does; or hooks have finished.
    PortForward(port_forward::Change),
}

impl Place for Supervisor {
    type Happening = Happening;

    fn tunnel_runs(&self) -> bool {
        let runs = self.tunnel.as_ref().is_some_and(KeptTunnel::is_running);
        runs && owner::exists(&self.config.name)
    }

    async fn step(&mut self, step: Step) -> anyhow::Result<Progress> {
        match step {
            Step::FindTunnel => {
                let found = self.find_tunnel().await?;
                return Ok(Progress::Ended(Event::Found(found)));
            }
            Step::FreeName => return Ok(Progress::Ended(self.free_name().await?)),
            Step::Hooks(moment) => {
                let hooks = self.hooks(moment);
                return Ok(Progress::Goes(Box::pin(async { Ok(hooks.run().await?) })));
            }
            Step::UndoHooks => return Ok(self.undo_hooks()),
            Step::CloseKillSwitch => self.close_kill_switch().await?,
            Step::TakeFromWgQuick => self.take_from_wg_quick().await?,
            Step::NoteStart => self.state.write(&self.config.name)?,
            Step::NoteHooks => {
                self.state.hooks_begun = true;
                self.state.write(&self.config.name)?;
            }
            Step::StartTunnel => self.start_tunnel().await?,
            Step::TakeOver => self.take_over().await?,
            Step::ReplaceProcess => self.replace_process().await?,
            Step::SetUpHost => self.set_up_host().await?,
            Step::NoteChanges => self.note_changes().await,
            Step::NoteUp => {
                self.state.is_up = true;
                self.state.write(&self.config.name)?;
            }
            Step::FindThisMachine => self.find_this_machine().await?,
            Step::TellCaller => self.tell_caller().await?,
            // Steps on the way down.
            Step::Save
            | Step::NoteEnd
            | Step::StopTunnel
            | Step::UndoHost { .. }
            | Step::ForgetState
            | Step::OpenKillSwitch => {}
        }
        Progress::done()
    }

    async fn perform(
        &mut self,
        effect: Effect,
        state: &State,
        asked: &mut Option<Asked>,
    ) -> Option<Event> {
        match effect {
            Effect::Answer => self.on_request(asked.take()?, state).await,
            Effect::Confirm => answer(asked.take()?.reply, Ok(Vec::new())),
            Effect::Refuse(refusal) => answer(asked.take()?.reply, Err(self.refusal(refusal))),
            Effect::Reload => self.on_reload(state).await,
            Effect::Replace => {
                let Err(error) = self.replace(state).await;
                warn!("this version stays: {error:#}");
            }
            Effect::Pause { seconds } => {
                let paused = self.pause(seconds).await;
                return or_answer(paused, asked);
            }
            Effect::Resume => return or_answer(self.resume().await, asked),
            Effect::NotePause { seconds, until } => self.on_paused(seconds, until, state).await,
            Effect::NoteResumed { is_asked } => self.on_resumed(is_asked, state).await,
            Effect::ReleaseHost => self.release_host().await,
            Effect::LookAgain => self.look_again(),
            Effect::FollowMark { id, fwmark } => self.on_question(id, fwmark).await,
            Effect::NoteDeath => self.note_death().await,
            Effect::ConfigureAgain => self.configure_again().await,
            effect => self.tunnel.as_mut()?.perform(effect).await,
        }
        None
    }

    async fn settle(&mut self, state: &State) -> Option<Event> {
        // Interrupted by a request.
        if let Some(host) = &mut self.host
            && let Err(error) = host.catch_up().await
        {
            let event = self.on_host_event(Err(error)).await;
            if event.is_some() {
                return event;
            }
        }
        if !self.port_forward.runs_hooks() {
            strays::reap(self.tunnel.as_ref().and_then(KeptTunnel::pid));
        }
        self.follow_addresses().await;
        self.follow_port_map().await;
        self.follow_port_forward();
        if state.is_up() {
            self.probe_paths();
        }
        self.note_paths();
        None
    }

    async fn next(&mut self, state: &State) -> Happening {
        if !state.is_serving() {
            return Happening::Tunnel(next_of(&mut self.tunnel).await);
        }
        tokio::select! {
            event = watch(&mut self.host) => Happening::Host(event),
            event = next_of(&mut self.tunnel) => Happening::Tunnel(event),
            question = next_question(&mut self.metrics) => Happening::Question(question),
            () = self.addresses.next() => Happening::Addresses,
            narrow = self.path_mtu.next() => Happening::Probed(narrow),
            () = self.port_map.changed() => Happening::PortMapping,
            change = self.port_forward.changed() => Happening::PortForward(change),
        }
    }

    async fn react(&mut self, happening: Happening, state: &State) -> Option<Event> {
        match happening {
            Happening::Host(event) => return self.on_host_event(event).await,
            Happening::Tunnel(event) => return self.on_tunnel_event(event).await,
            // The server may have given up.
            Happening::Question(question) => drop(question.send(self.observe(state).await)),
            Happening::Addresses => {}
            Happening::Probed(narrow) => self.on_probed(narrow).await,
            Happening::PortMapping => self.on_port_mapping().await,
            Happening::PortForward(change) => self.on_port_forward(change),
        }
        None
    }
}

impl Supervisor {
    /// Runs the hooks of a tunnel that was killed.
    fn undo_hooks(&self) -> Progress {
        let name = &self.config.name;
        info!("Undoing the hooks of the tunnel {name}, which was killed");
        let earlier = self.earlier.as_ref();
        let port = earlier.and_then(|earlier| earlier.port_forward.as_ref());
        let port = port_forward::for_hooks(&self.config, port);
        let terminal = self.terminal.as_ref();
        let hooks = Hooks::of(&self.config, Moment::PostDown, port, terminal);
        Progress::Goes(Box::pin(async {
            if let Err(error) = hooks.run().await {
                warn!("{:#}", anyhow::Error::from(error));
            }
            Ok(())
        }))
    }
}

/// Returns the event of an effect done for a client or, if it failed, gives the client the reason.
fn or_answer(outcome: anyhow::Result<Option<Event>>, asked: &mut Option<Asked>) -> Option<Event> {
    match outcome {
        Ok(event) => event,
        Err(error) => {
            answer(asked.take()?.reply, Err(error));
            None
        }
    }
}

async fn watch(host: &mut Option<Host>) -> Result<HostEvent, HostError> {
    match host {
        Some(host) => host.watch().await,
        None => pending().await,
    }
}
