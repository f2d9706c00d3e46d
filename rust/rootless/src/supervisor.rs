//! The supervisor: a tunnel and everything that belongs to it, from start to end.

use std::{future::poll_fn, io, path::PathBuf, pin::pin, sync::Arc, time::SystemTime};

use anyhow::Context;
use convoy_lifecycle::Ending;
use convoy_network::relay::{DEFAULT_BUFFER, Method, Relay};
use convoy_process::{background::Parent, logging, message::Connection};
use convoy_report::Condition;
use convoy_status::{line, seconds};
use convoy_supervision::notify;
use tokio::{
    net::UnixStream,
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
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
    /// Whether it keeps running without commands.
    pub(super) lasts: bool,
    /// SIGUSR1.
    pub(super) counters: Signal,
    pub(super) sockets: Sockets,
}

impl Supervisor {
    /// Starts the engine, the tunnel and the listeners. May be cancelled.
    pub(super) async fn bring_up(wanted: Wanted, sockets: Sockets) -> anyhow::Result<Self> {
        let Wanted {
            config, options, ..
        } = wanted;
        let counters = signal(SignalKind::user_defined1()).context("cannot listen to signals")?;
        let mut settings = settings::settings(&config, &options, sockets.directory());
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
        let tunnel =
            Tunnel::start(config, &engine, settings.mtu, &options, &sockets.tunnel).await?;
        let Wanted {
            forwardings,
            buffer,
            relays,
            ..
        } = wanted;
        let buffer = buffer.unwrap_or(DEFAULT_BUFFER);
        let relay = Arc::new(Relay::new(buffer, Method::Splice));
        let has_ports = forwardings.iter().any(|it| !it.listeners.is_empty());
        let starting = async {
            let (of_forwards, config) = (Arc::clone(&relay), &tunnel.config);
            let forwards =
                Forwards::start(forwardings, of_forwards, config, Arc::clone(&network)).await?;
            let gateway = match wanted.gateway {
                Some(wanted) => {
                    Some(Gateway::start(wanted, &mut engine, relay, config, has_ports).await?)
                }
                None => None,
            };
            Ok((forwards, gateway))
        };
        let started = on(&relays, starting).await;
        let started = match started {
            Ok((forwards, Some(mut gateway))) => {
                let served = gateway.serve_dns(&tunnel.config, &network).await;
                served.map(|()| (forwards, Some(gateway)))
            }
            other => other,
        };
        let (forwards, gateway) = match started {
            Ok(started) => started,
            Err(error) => {
                // The first failure matters more than its consequences.
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

    /// Reports to the caller that the tunnel is ready.
    pub(super) async fn tell(&mut self, caller: Caller<'_>) -> anyhow::Result<()> {
        match caller {
            Caller::Command(mut command, process) => {
                self.commands
                    .admit(&mut command, process, &self.engine)
                    .await
            }
            Caller::Terminal(parent) => {
                self.lasts = true;
                info!("{} is up", self.tunnel.config.name);
                notify::ready(&line(&self.path, Condition::Up));
                parent.take().map_or(Ok(()), Parent::ready)
            }
        }
    }

    /// Logs why the tunnel is going down, and notifies the service manager.
    pub(super) fn announce_end(&self, ending: &Ending, failure: Option<&anyhow::Error>) {
        let name = &self.tunnel.config.name;
        match (ending, failure) {
            (_, Some(error)) => error!("Taking {name} down: {error:#}"),
            (Ending::Signal(signal), _) => info!("Taking {name} down: {signal}"),
            (Ending::Requested, _) => info!("Taking {name} down: requested by `convoy down`"),
            _ => {}
        }
        if self.lasts {
            notify::stopping();
        }
    }

    /// Logs the traffic and refusals.
    pub(super) fn log(&self) {
        self.forwards.log();
        if let Some(gateway) = &self.gateway {
            gateway.log();
        }
    }

    pub(super) async fn on_command(&mut self, command: io::Result<UnixStream>) {
        let admitted = async {
            let mut command = Connection::new(command?);
            let process = process_of(&command)?;
            self.commands
                .admit(&mut command, process, &self.engine)
                .await
        };
        if let Err(error) = admitted.await {
            warn!("cannot admit a command: {error:#}");
        }
    }

    /// Ends everything inside, then the tunnel; returns the guard that keeps its name taken.
    pub(super) async fn take_down(self) -> anyhow::Result<Sockets> {
        self.log();
        drop((self.forwards, self.gateway));
        drop(self.engine);
        self.tunnel.stop().await?;
        Ok(self.sockets)
    }
}

/// Runs `future` here, but everything that it spawns and opens on another runtime.
async fn on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    })
    .await
}
