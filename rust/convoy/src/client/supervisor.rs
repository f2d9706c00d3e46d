//! The supervisor: brings a tunnel up, keeps it and the host as the configuration wants them, and takes it down.
//!
//! ```text
//!  control socket ─┐                       ┌─▶ Host: addresses, routes, rules, DNS, kill switch
//!  signals ────────┤                       │
//!  host's events ──┼─▶ one select! loop ───┼─▶ the tunnel: configuration, handshakes, answers
//!  tunnel's events ┤                       │
//!  look-ups, sleep ┤                       ├─▶ echo requests through the tunnel
//!  echoes ─────────┘                       └─▶ service manager, clients, subscribers
//! ```
//!
//! It has one thread, and no timer runs while nothing happens, except for a service manager's watchdog.

mod change;
mod follow;
mod log;
mod observe;
mod react;
mod replace;
mod start;
mod tell;

use std::{future::pending, net::IpAddr, path::PathBuf, pin::pin, time::SystemTime};

use anyhow::anyhow;
use convoy_config::Config;
use convoy_host::{Applied, Event, Host, HostError, open_kill_switch};
use convoy_proto::config::PublicKey;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{
    addresses::Addresses,
    changed::Changed,
    control::{Control, Reply},
    events::{Events, What},
    hooks::strays,
    kept::{KeptEvent, KeptTunnel},
    metrics::{Metrics, next_question},
    notify::{self, Watchdog},
    owner,
    path_mtu::PathMtu,
    places,
    signals::{SignalEvent, Signals},
    sleep::Sleep,
    state::State,
    take_down::{TakeDown, stays},
    terminal::Terminal,
    up::Wanted,
};
use crate::{background::Parent, logging, metrics::DaemonArgs};

/// Brings the tunnel up, serves it, and takes it down.
pub(crate) async fn run(wanted: Wanted, parent: &mut Option<Parent>) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    tokio::spawn(logging::live::keep());
    let mut supervisor = Supervisor::new(wanted).await?;
    let (mut control, mut metrics) = match supervisor.listen() {
        Ok(sockets) => sockets,
        Err(error) => return Err(supervisor.leave(error).await),
    };
    let mut clients = Vec::new();
    let mut is_asked_to_end = true;
    let up = tokio::select! {
        up = supervisor.bring_up() => {
            is_asked_to_end = false;
            up
        }
        signal = interrupted(&mut signals) => Err(anyhow!("interrupted by {signal}")),
        client = control.next_down("the tunnel is coming up") => {
            clients.push(client);
            Err(anyhow!("interrupted by `convoy down`"))
        }
    };
    let up = match (up, parent.take()) {
        (Ok(()), Some(parent)) => parent.ready(),
        (up, former) => {
            *parent = former;
            up
        }
    };
    if let Err(error) = up {
        let error = match is_asked_to_end {
            true => supervisor.undo(error, false).await,
            false => supervisor.give_up(error).await,
        };
        control.finish(clients, &done()).await;
        return Err(error);
    }
    supervisor.terminal = None;
    notify::ready(&supervisor.line());

    let ending = supervisor
        .serve(&mut control, &mut signals, &mut metrics)
        .await;
    drop(metrics);
    info!("Taking {} down: {ending}", supervisor.config.name);
    notify::stopping();
    let reason = ending.to_string();
    supervisor.events.publish(What::Down {
        reason: reason.clone(),
    });
    let is_failure = matches!(ending, Ending::Failed(_));
    if let Ending::Requested(client) = ending {
        clients.push(client);
    }
    let stays = stays(&supervisor.config);
    let mut work = supervisor.take_down();
    work.keeps_kill_switch = is_failure;
    let outcome = {
        let mut work = pin!(work.run());
        loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                client = control.next_down("the tunnel is going down") => clients.push(client),
            }
        }
    };
    let reply = match &outcome {
        Ok(said) => Reply::Done {
            warnings: said.iter().cloned().chain(stays).collect(),
        },
        Err(error) => Reply::Failed {
            reason: format!("{error:#}"),
        },
    };
    control.finish(clients, &reply).await;
    let outcome = outcome.map(|said| said.iter().for_each(|it| warn!("{it}")));
    match is_failure {
        true => outcome.and(Err(anyhow!(
            "the tunnel ended, though nobody asked: {reason}"
        ))),
        false => outcome,
    }
}

/// One tunnel, and everything that it needs on this host.
#[derive(Debug)]
struct Supervisor {
    /// The configuration's file.
    path: PathBuf,
    /// The program's file.
    program: PathBuf,
    config: Config,
    daemon: DaemonArgs,
    /// Whether to take the interface over from wg-quick.
    adopts: bool,
    /// Whether the kill switch was closed before the host's changes were made.
    is_closed_early: bool,
    /// Where warnings and hooks write until the tunnel is up.
    terminal: Option<Terminal>,
    /// For the time after this process.
    state: State,
    found: Found,
    /// `None` once the interface has left this network namespace.
    host: Option<Host>,
    /// Result of the configuration on the host.
    applied: Applied,
    /// `None` until it is started.
    tunnel: Option<KeptTunnel>,
    /// The mark of the tunnel's datagrams.
    mark: Option<u32>,
    /// The mark that was chosen, as the configuration has none.
    picked_mark: Option<u32>,
    /// The tunnel as it was when somebody else had changed it, for its next process.
    changed: Option<Changed>,
    addresses: Addresses,
    /// The name servers that the host's state makes room for.
    resolvers: Vec<IpAddr>,
    /// The public key of the key that a hook has set.
    this_machine: Option<PublicKey>,
    path_mtu: PathMtu,
    events: Events,
    paused_until: Option<SystemTime>,
    /// Ending of the tunnel, if something has ended it while hooks ran.
    ending: Option<Ending>,
}

/// State left by an earlier process. A start that fails does not destroy it.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    has_tunnel: bool,
    is_kill_switch_closed: bool,
}

/// Why a tunnel goes down.
#[derive(Debug)]
enum Ending {
    Requested(oneshot::Sender<Reply>),
    Signal(&'static str),
    /// The tunnel's process has ended in an orderly way.
    Tunnel(String),
    InterfaceDeleted,
    /// Nothing more can be done; the kill switch stays closed, for whoever starts this process again.
    Failed(String),
}

impl Supervisor {
    /// Opens the sockets on which this process answers.
    fn listen(&self) -> anyhow::Result<(Control, Option<Metrics>)> {
        let name = &self.config.name;
        let metrics = Metrics::serve(&self.daemon, name)?;
        Ok((Control::listen(&places::control(name))?, metrics))
    }

    /// Keeps the tunnel and the host as they should be, until something ends the tunnel.
    async fn serve(
        &mut self,
        control: &mut Control,
        signals: &mut Signals,
        metrics: &mut Option<Metrics>,
    ) -> Ending {
        let mut sleep = Sleep::new().await;
        let mut watchdog = Watchdog::new();
        loop {
            if let Err(error) = catch_up(&mut self.host).await {
                self.on_host_event(Err(error)).await;
            }
            if let Some(ending) = self.ending.take() {
                return ending;
            }
            strays::reap(self.tunnel.as_ref().and_then(KeptTunnel::pid));
            self.follow_addresses().await;
            self.probe_paths();
            self.note_paths();
            tokio::select! {
                asked = control.next() => self.on_request(asked).await,
                event = watch(&mut self.host) => self.on_host_event(event).await,
                event = next_of(&mut self.tunnel) => self.on_tunnel_event(event).await,
                signal = signals.next() => self.on_signal(signal, metrics).await,
                // Who has asked may have left.
                question = next_question(metrics) => drop(question.send(self.observe().await)),
                () = self.addresses.next() => {}
                narrow = self.path_mtu.next() => self.on_probed(narrow).await,
                () = sleep.resumed() => self.on_resume(),
                () = watchdog.due() => watchdog.calm(),
            }
        }
    }

    /// Ends a start that has changed nothing; returns why it failed.
    async fn leave(mut self, error: anyhow::Error) -> anyhow::Error {
        let name = &self.config.name;
        match self.host.take() {
            Some(host) if host.has_changes() => {
                anyhow!("{error:#}\nwhat was left of {name} stays as it was")
            }
            Some(host) => match host.undo().await {
                Ok(()) => error,
                Err(more) => anyhow!("{error:#}\n{more}"),
            },
            None => error,
        }
    }

    /// Ends a start that failed; returns why it failed. What was there before stays: a tunnel that runs, and a closed
    /// kill switch in any case.
    async fn give_up(self, error: anyhow::Error) -> anyhow::Error {
        let name = self.config.name.clone();
        let runs = self.tunnel.as_ref().is_some_and(KeptTunnel::is_running);
        if self.found.has_tunnel && runs && owner::exists(&name) {
            return anyhow!(
                "{error:#}\nthe tunnel {name}, which was up, goes on without a supervisor (fix: mend this, then \
                 `convoy up` again)"
            );
        }
        let stays_closed = self.found.is_kill_switch_closed;
        let error = self.undo(error, stays_closed).await;
        match stays_closed {
            true => anyhow!(
                "{error:#}\nthe kill switch of {name} was closed and stays so: `convoy down {name} \
                 --open-kill-switch` opens it"
            ),
            false => error,
        }
    }

    /// Undoes a start; returns why it is to be undone.
    async fn undo(self, error: anyhow::Error, keeps_kill_switch: bool) -> anyhow::Error {
        let is_closed_early = self.is_closed_early;
        let name = self.config.name.clone();
        let mut work = self.take_down();
        work.keeps_kill_switch = keeps_kill_switch;
        let mut undone = work.run().await.map(drop);
        if is_closed_early {
            let opened = open_kill_switch(name.as_str()).await;
            undone = undone.and(opened.map_err(Into::into));
        }
        match undone {
            Ok(()) => error,
            Err(more) => anyhow!("{error:#}\nand not everything could be undone: {more:#}"),
        }
    }

    fn take_down(self) -> TakeDown {
        TakeDown {
            name: self.config.name.clone(),
            config: Some(self.config),
            host: self.host,
            tunnel: self.tunnel,
            hooks_begun: self.state.hooks_begun,
            is_up: self.state.is_up,
            picked_mark: self.picked_mark,
            keeps_kill_switch: false,
            terminal: self.terminal,
        }
    }
}

fn done() -> Reply {
    let warnings = Vec::new();
    Reply::Done { warnings }
}

async fn interrupted(signals: &mut Signals) -> &'static str {
    loop {
        if let SignalEvent::End(signal) = signals.next().await {
            return signal;
        }
    }
}

/// Finishes what a request has interrupted.
async fn catch_up(host: &mut Option<Host>) -> Result<(), HostError> {
    match host {
        Some(host) => host.catch_up().await,
        None => Ok(()),
    }
}

async fn watch(host: &mut Option<Host>) -> Result<Event, HostError> {
    match host {
        Some(host) => host.watch().await,
        None => pending().await,
    }
}

async fn next_of(tunnel: &mut Option<KeptTunnel>) -> KeptEvent {
    match tunnel {
        Some(tunnel) => tunnel.next().await,
        None => pending().await,
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requested(_) => f.write_str("as requested"),
            Self::Signal(signal) => f.write_str(signal),
            Self::Tunnel(reason) => write!(f, "the tunnel ended ({reason})"),
            Self::InterfaceDeleted => f.write_str("the interface was deleted"),
            Self::Failed(reason) => write!(f, "it failed ({reason})"),
        }
    }
}
