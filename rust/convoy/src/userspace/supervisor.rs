//! The supervisor: brings the tunnel up, keeps it, and leaves nothing behind.

use std::{io, path::PathBuf, pin::pin, sync::Arc, time::SystemTime};

use anyhow::{Context, anyhow};
use convoy_network::relay::{DEFAULT_BUFFER, Method, Relay};
use tokio::{
    net::UnixStream,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};
use tracing::{error, info, warn};

use super::{
    caller::{Caller, Wanted},
    commands::{Commands, process_of},
    engine::Engine,
    forwards::Forwards,
    gateway::Gateway,
    settings,
    sockets::Sockets,
    tunnel::Tunnel,
};
use crate::{
    background::Parent,
    client::{
        control::{Asked, Control, Reply, Request},
        notify,
        signals::{SignalEvent, Signals},
        sleep::Sleep,
        status::{Condition, line, seconds},
    },
    logging,
};

/// Brings a tunnel up, keeps it, and takes it down.
pub(crate) async fn run(wanted: Wanted, caller: Caller<'_>) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let (sockets, mut control) = Sockets::bind(&wanted.config.name).await?;
    let mut clients = Vec::new();
    let up = tokio::select! {
        up = Supervisor::bring_up(wanted, sockets) => up,
        () = caller.leaves() => Err(anyhow!("the command is gone")),
        signal = interrupted(&mut signals) => Err(anyhow!("interrupted by {signal}")),
        client = control.next_down("the tunnel is coming up") => {
            clients.push(client);
            Err(anyhow!("interrupted by `convoy down`"))
        }
    };
    let is_lasting = matches!(caller, Caller::Terminal(_));
    let mut supervisor = match up {
        Ok(supervisor) => supervisor,
        Err(error) => {
            control.finish(clients, &done()).await;
            return Err(error);
        }
    };
    let ending = match supervisor.tell(caller).await {
        Ok(()) => supervisor.serve(&mut control, &mut signals).await,
        Err(error) => Ending::Failure(error),
    };
    let name = supervisor.tunnel.config.name.clone();
    let failed = match ending {
        Ending::Delivered => Ok(()),
        Ending::Signal(signal) => {
            info!("Taking {name} down: {signal}");
            Ok(())
        }
        Ending::Requested(client) => {
            info!("Taking {name} down: requested by `convoy down`");
            clients.push(client);
            Ok(())
        }
        Ending::Failure(error) => {
            error!("Taking {name} down: {error:#}");
            Err(error)
        }
    };
    if is_lasting {
        notify::stopping();
    }
    let outcome = {
        let mut work = pin!(supervisor.take_down());
        loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                client = control.next_down("the tunnel is going down") => clients.push(client),
            }
        }
    };
    let reply = match &outcome {
        Ok(_) => done(),
        Err(error) => Reply::Failed {
            reason: format!("{error:#}"),
        },
    };
    control.finish(clients, &reply).await;
    // Only now is the name free for another supervisor.
    let sockets = outcome?;
    drop(sockets);
    failed
}

/// Why a tunnel ends.
#[derive(Debug)]
enum Ending {
    /// The last command has ended, and what it has sent was delivered.
    Delivered,
    Requested(oneshot::Sender<Reply>),
    Signal(&'static str),
    Failure(anyhow::Error),
}

/// A tunnel, and everything that belongs to it.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) path: PathBuf,
    /// In seconds since 1970.
    pub(super) since: u64,
    /// MTU of the interface inside, in bytes.
    pub(super) mtu: u16,
    pub(super) tunnel: Tunnel,
    pub(super) forwards: Forwards,
    pub(super) gateway: Option<Gateway>,
    pub(super) engine: Engine,
    pub(super) commands: Commands,
    /// Whether it goes on without commands.
    lasts: bool,
    /// SIGUSR1.
    counters: Signal,
    sockets: Sockets,
}

impl Supervisor {
    /// Starts the engine, the tunnel and the listeners. May be cancelled.
    async fn bring_up(wanted: Wanted, sockets: Sockets) -> anyhow::Result<Self> {
        let Wanted { config, daemon, .. } = wanted;
        let counters = signal(SignalKind::user_defined1()).context("cannot listen to signals")?;
        let mut settings = settings::settings(&config, &daemon, sockets.directory());
        settings.is_gateway = wanted.gateway.is_some();
        let mut engine = Engine::start(wanted.engine, &settings, &config)?;
        for warning in engine.warnings() {
            let warning = format!("convoy: warning: {warning}");
            match &wanted.terminal {
                Some(terminal) => terminal.say(&warning),
                None => logging::say(&warning),
            }
        }
        let network = engine.network(&config).context("cannot look names up")?;
        let tunnel = Tunnel::start(config, &engine, settings.mtu, &daemon, &sockets.tunnel).await?;
        let Wanted {
            forwardings,
            buffer,
            ..
        } = wanted;
        let buffer = buffer.unwrap_or(DEFAULT_BUFFER);
        let relay = Arc::new(Relay::new(buffer, Method::Splice));
        let has_ports = forwardings.iter().any(|it| !it.listeners.is_empty());
        let started = async {
            let (of_forwards, config) = (Arc::clone(&relay), &tunnel.config);
            let forwards =
                Forwards::start(forwardings, of_forwards, config, Arc::clone(&network)).await?;
            let gateway = match wanted.gateway {
                Some(wanted) => {
                    let inside = (&mut engine, &network);
                    Some(Gateway::start(wanted, inside, relay, config, has_ports).await?)
                }
                None => None,
            };
            Ok((forwards, gateway))
        };
        let (forwards, gateway) = match started.await {
            Ok(started) => started,
            Err(error) => {
                // What has failed matters more than what follows.
                drop(tunnel.stop().await);
                return Err(error);
            }
        };
        Ok(Self {
            path: wanted.path,
            since: seconds(SystemTime::now()),
            mtu: settings.mtu,
            tunnel,
            forwards,
            gateway,
            engine,
            commands: Commands::new(),
            lasts: false,
            counters,
            sockets,
        })
    }

    /// Tells the caller that the tunnel is ready.
    async fn tell(&mut self, caller: Caller<'_>) -> anyhow::Result<()> {
        match caller {
            Caller::Command(command, process) => {
                self.commands.admit(&command, process, &self.engine).await
            }
            Caller::Terminal(parent) => {
                self.lasts = true;
                info!("{} is up", self.tunnel.config.name);
                notify::ready(&line(&self.path, Condition::Up));
                parent.take().map_or(Ok(()), Parent::ready)
            }
        }
    }

    /// Keeps the tunnel until something ends it.
    async fn serve(&mut self, control: &mut Control, signals: &mut Signals) -> Ending {
        let mut sleep = Sleep::new().await;
        loop {
            self.tunnel.follow_addresses().await;
            let is_open = self.lasts || self.commands.count() > 0;
            tokio::select! {
                is_over = self.commands.next_end(&self.engine, self.lasts) => if is_over {
                    return Ending::Delivered;
                },
                command = self.sockets.command(), if is_open => self.on_command(command).await,
                asked = control.next() => if let Some(ending) = self.on_request(asked).await {
                    return ending;
                },
                happening = self.tunnel.next() => self.tunnel.react(happening).await,
                reason = self.engine.ended() => return Ending::Failure(reason),
                () = sleep.resumed() => self.tunnel.resumed(),
                _ = self.counters.recv() => self.log(),
                signal = signals.next() => match signal {
                    SignalEvent::End(signal) => return Ending::Signal(signal),
                    SignalEvent::Reload | SignalEvent::Replace => warn!("{CANNOT_CHANGE}"),
                },
            }
        }
    }

    /// Logs what was carried and refused.
    fn log(&self) {
        self.forwards.log();
        if let Some(gateway) = &self.gateway {
            gateway.log();
        }
    }

    async fn on_command(&mut self, command: io::Result<UnixStream>) {
        let admitted = async {
            let command = command?;
            let process = process_of(&command)?;
            self.commands.admit(&command, process, &self.engine).await
        };
        if let Err(error) = admitted.await {
            warn!("cannot admit a command: {error:#}");
        }
    }

    /// Answers a request, unless it ends the tunnel.
    async fn on_request(&mut self, asked: Asked) -> Option<Ending> {
        let answer = match asked.request {
            Request::Down => return Some(Ending::Requested(asked.reply)),
            Request::Status => Reply::Status(Box::new(self.status().await)),
            Request::Reload => failed(CANNOT_CHANGE),
            Request::Pause { .. } | Request::Resume => failed(
                "a tunnel without root changes nothing on this host, so there is nothing to pause",
            ),
            Request::Log { .. } | Request::Subscribe => {
                failed("a tunnel without root does not offer this")
            }
        };
        // Who has asked may have left.
        drop(asked.reply.send(answer));
        None
    }

    /// Ends everything inside, then the tunnel; returns what keeps its name taken.
    async fn take_down(self) -> anyhow::Result<Sockets> {
        self.log();
        drop((self.forwards, self.gateway));
        drop(self.engine);
        self.tunnel.stop().await?;
        Ok(self.sockets)
    }
}

const CANNOT_CHANGE: &str =
    "a tunnel without root cannot be changed while it is up: take it down, and up again";

async fn interrupted(signals: &mut Signals) -> &'static str {
    loop {
        if let SignalEvent::End(signal) = signals.next().await {
            return signal;
        }
    }
}

fn failed(reason: &str) -> Reply {
    Reply::Failed {
        reason: reason.to_owned(),
    }
}

fn done() -> Reply {
    Reply::Done {
        warnings: Vec::new(),
    }
}
