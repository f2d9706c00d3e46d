//! A user's processes as the place of a tunnel: performs effects and reports events.

use std::{future::pending, io};

use convoy_keeper::{KeptEvent, tunnel::TunnelEvent};
use convoy_lifecycle::{Effect, Event, KillSwitch, State, Step};
use convoy_supervision::{
    Place, Progress,
    control::{Asked, Reply, Request},
};
use tokio::net::UnixStream;
use tracing::warn;

use super::{
    caller::{Caller, Wanted},
    sockets::Sockets,
    supervisor::Supervisor,
};

const CANNOT_CHANGE: &str =
    "a tunnel without root cannot be changed while it is up: take it down, and up again";

/// A tunnel in processes of its user.
#[derive(Debug)]
pub(super) struct Rootless<'a> {
    /// `None` once it is coming up.
    wanted: Option<(Wanted, Sockets)>,
    /// `None` once it has been told that the tunnel is up.
    caller: Option<Caller<'a>>,
    /// `None` before, and after.
    pub(super) supervisor: Option<Supervisor>,
    /// Keeps the name taken once the tunnel is down.
    sockets: Option<Sockets>,
}

/// An event inside.
pub(super) enum Happening {
    /// A command has ended; true if there is nothing more to wait for.
    CommandEnded(bool),
    Command(io::Result<UnixStream>),
    Tunnel(KeptEvent),
    /// A look-up has ended, or is due.
    Addresses,
    EngineEnded(anyhow::Error),
    /// SIGUSR1.
    Counters,
}

impl<'a> Rootless<'a> {
    pub(super) fn new(wanted: Wanted, sockets: Sockets, caller: Caller<'a>) -> Self {
        Self {
            wanted: Some((wanted, sockets)),
            caller: Some(caller),
            supervisor: None,
            sockets: None,
        }
    }
}

impl Place for Rootless<'_> {
    type Happening = Happening;

    fn tunnel_runs(&self) -> bool {
        self.supervisor.is_some()
    }

    async fn step(&mut self, step: Step) -> anyhow::Result<Progress> {
        match step {
            Step::StartTunnel => {
                if let Some((wanted, sockets)) = self.wanted.take() {
                    self.supervisor = Some(Supervisor::bring_up(wanted, sockets).await?);
                }
            }
            Step::TellCaller => {
                if let (Some(supervisor), Some(caller)) = (&mut self.supervisor, self.caller.take())
                {
                    supervisor.tell(caller).await?;
                }
            }
            Step::StopTunnel => {
                if let Some(supervisor) = self.supervisor.take() {
                    self.sockets = Some(supervisor.take_down().await?);
                }
            }
            // Steps of a tunnel that changes its host.
            _ => {}
        }
        Progress::done()
    }

    async fn perform(
        &mut self,
        effect: Effect,
        _state: &State,
        asked: &mut Option<Asked>,
    ) -> Option<Event> {
        let supervisor = self.supervisor.as_mut()?;
        match effect {
            Effect::Answer | Effect::Refuse(_) => {
                let asked = asked.take()?;
                // A client that has left is not interested.
                drop(asked.reply.send(supervisor.reply(&asked.request).await));
            }
            Effect::Reload | Effect::Replace => warn!("{CANNOT_CHANGE}"),
            Effect::LookAgain => supervisor.tunnel.look_again(),
            effect => supervisor.tunnel.perform(effect).await,
        }
        None
    }

    async fn settle(&mut self, _state: &State) -> Option<Event> {
        self.supervisor.as_mut()?.tunnel.follow_addresses().await;
        None
    }

    async fn next(&mut self, _state: &State) -> Happening {
        let Some(it) = &mut self.supervisor else {
            return pending().await;
        };
        let is_open = it.lasts || it.commands.count() > 0;
        tokio::select! {
            is_over = it.commands.next_end(&it.engine, it.lasts) => Happening::CommandEnded(is_over),
            command = it.sockets.command(), if is_open => Happening::Command(command),
            happening = it.tunnel.next() => happening.map_or(Happening::Addresses, Happening::Tunnel),
            reason = it.engine.ended() => Happening::EngineEnded(reason),
            _ = it.counters.recv() => Happening::Counters,
        }
    }

    async fn react(&mut self, happening: Happening, _state: &State) -> Option<Event> {
        let supervisor = self.supervisor.as_mut()?;
        match happening {
            Happening::CommandEnded(is_over) => return is_over.then_some(Event::Delivered),
            Happening::Command(command) => supervisor.on_command(command).await,
            // Nothing on the host depends on it: the process is simply replaced.
            Happening::Tunnel(KeptEvent::Tunnel(TunnelEvent::Ended { .. })) => {}
            Happening::Tunnel(event) => match event.decided(KillSwitch::Off) {
                Ok(event) => return Some(event),
                Err(event) => supervisor.tunnel.on_event(&event),
            },
            Happening::Addresses => {}
            Happening::EngineEnded(reason) => {
                return Some(Event::EngineEnded(format!("{reason:#}")));
            }
            Happening::Counters => supervisor.log(),
        }
        None
    }
}

impl Supervisor {
    async fn reply(&mut self, request: &Request) -> Reply {
        let reason = match request {
            Request::Status => return Reply::Status(Box::new(self.status().await)),
            Request::Pause { .. } | Request::Resume => {
                "a tunnel without root changes nothing on this host, so there is nothing to pause"
            }
            Request::Log { .. } | Request::Subscribe => "a tunnel without root does not offer this",
            Request::Reload | Request::Down => CANNOT_CHANGE,
        };
        Reply::Failed {
            reason: reason.to_owned(),
        }
    }
}
