//! The supervisor: brings a tunnel up, keeps it and the host as the configuration wants them, and takes it down.
//!
//! ```text
//!  control socket ─┐                       ┌─▶ Host: addresses, routes, rules, DNS, kill switch
//!  signals ────────┤                       │
//!  host's events ──┼─▶ one select! loop ───┼─▶ the tunnel: configuration, handshakes, answers
//!  tunnel's events ┤                       │
//!  look-ups, sleep ┤                       ├─▶ echo requests through the tunnel
//!  echoes ─────────┘                       └─▶ service manager, clients
//! ```
//!
//! It has one thread, and no timer runs while nothing happens, except for a service manager's watchdog.

mod change;
mod follow;
mod start;
mod tell;

use std::{
    future::pending,
    path::PathBuf,
    pin::pin,
    time::{Instant, SystemTime},
};

use anyhow::anyhow;
use convoy_config::Config;
use convoy_host::{Applied, Event, Host, HostError, open_kill_switch};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{
    addresses::Addresses,
    control::{Asked, Control, Reply, Request},
    desired::kill_switch,
    hooks::strays,
    kept::{KeptEvent, KeptTunnel},
    notify::{self, Watchdog},
    path_mtu::PathMtu,
    places,
    signals::{SignalEvent, Signals},
    sleep::Sleep,
    state::State,
    take_down::{TakeDown, stays},
    terminal::Terminal,
    tunnel::TunnelEvent,
    up::Wanted,
};
use crate::{background::Parent, cli::DaemonArgs};

/// Brings the tunnel up, serves it, and takes it down.
pub(crate) async fn run(wanted: Wanted, parent: &mut Option<Parent>) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut supervisor = Supervisor::new(wanted).await?;
    let mut control = match Control::listen(&places::control(&supervisor.config.name)) {
        Ok(control) => control,
        Err(error) => return Err(supervisor.undo(error).await),
    };
    let mut clients = Vec::new();
    let up = tokio::select! {
        up = supervisor.bring_up() => up,
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
        let error = supervisor.undo(error).await;
        control.finish(clients, &done()).await;
        return Err(error);
    }
    supervisor.terminal = None;
    notify::ready(&supervisor.line());

    let ending = supervisor.serve(&mut control, &mut signals).await;
    info!("Taking {} down: {ending}", supervisor.config.name);
    notify::stopping();
    if let Ending::Requested(client) = ending {
        clients.push(client);
    }
    let stays = stays(&supervisor.config);
    let outcome = {
        let mut work = pin!(supervisor.take_down().run());
        loop {
            tokio::select! {
                outcome = &mut work => break outcome,
                client = control.next_down("the tunnel is going down") => clients.push(client),
            }
        }
    };
    let reply = match &outcome {
        Ok(()) => Reply::Done { warnings: stays },
        Err(error) => Reply::Failed {
            reason: format!("{error:#}"),
        },
    };
    control.finish(clients, &reply).await;
    outcome
}

/// One tunnel, and everything that it needs on this host.
#[derive(Debug)]
struct Supervisor {
    /// The configuration's file.
    path: PathBuf,
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
    /// `None` once the interface has left this network namespace.
    host: Option<Host>,
    /// What the host made of the configuration.
    applied: Applied,
    /// `None` until it is started.
    tunnel: Option<KeptTunnel>,
    /// The mark of the tunnel's datagrams.
    mark: Option<u32>,
    /// The mark that was chosen, as the configuration has none.
    picked_mark: Option<u32>,
    addresses: Addresses,
    path_mtu: PathMtu,
    paused_until: Option<SystemTime>,
    /// What ends the tunnel, if something has while hooks ran.
    ending: Option<Ending>,
}

/// Why a tunnel goes down.
#[derive(Debug)]
enum Ending {
    Requested(oneshot::Sender<Reply>),
    Signal(&'static str),
    /// The tunnel's process has ended in an orderly way.
    Tunnel(String),
    InterfaceDeleted,
}

impl Supervisor {
    /// Keeps the tunnel and the host as they should be, until something ends the tunnel.
    async fn serve(&mut self, control: &mut Control, signals: &mut Signals) -> Ending {
        let mut sleep = Sleep::new().await;
        let mut watchdog = Watchdog::new();
        loop {
            if let Some(ending) = self.ending.take() {
                return ending;
            }
            strays::reap(self.tunnel.as_ref().and_then(KeptTunnel::pid));
            self.follow_addresses().await;
            self.probe_paths();
            tokio::select! {
                asked = control.next() => self.on_request(asked).await,
                event = watch(&mut self.host) => self.on_host_event(event).await,
                event = next_of(&mut self.tunnel) => self.on_tunnel_event(event).await,
                signal = signals.next() => self.on_signal(signal).await,
                () = self.addresses.next() => {}
                narrow = self.path_mtu.next() => self.on_probed(narrow).await,
                () = sleep.resumed() => self.on_resume(),
                () = watchdog.due() => watchdog.calm(),
            }
        }
    }

    async fn on_request(&mut self, asked: Asked) {
        let outcome = match asked.request {
            Request::Down => {
                self.ending = Some(Ending::Requested(asked.reply));
                return;
            }
            Request::Status => {
                let status = self.status().await;
                // A client that has left is not interested; nor below.
                let _ = asked.reply.send(status);
                return;
            }
            Request::Reload => self.reload().await,
            Request::Pause { seconds } => self.pause(seconds).await,
            Request::Resume => self.resume().await,
        };
        let reply = match outcome {
            Ok(warnings) => Reply::Done { warnings },
            Err(error) => {
                warn!("{error:#}");
                let reason = format!("{error:#}");
                Reply::Failed { reason }
            }
        };
        let _ = asked.reply.send(reply);
    }

    async fn on_host_event(&mut self, event: Result<Event, HostError>) {
        match event {
            // The host has logged it.
            Ok(Event::Restored(_)) => {}
            Ok(Event::MtuChanged(mtu)) => {
                self.applied.mtu = mtu;
                self.path_mtu.want_all(&self.config);
            }
            Ok(Event::UnderlayChanged) => {
                info!("The network has changed");
                self.addresses.network_changed(Instant::now());
                self.forget_paths().await;
            }
            Ok(Event::Resumed) => {
                info!("The pause is over");
                self.paused_until = None;
                notify::status(&self.line());
            }
            Ok(Event::Moved) => self.on_move().await,
            Ok(Event::Gone) => self.ending = Some(Ending::InterfaceDeleted),
            Err(error) => warn!("cannot keep the host as it should be, trying again: {error}"),
        }
    }

    /// Lets the host go: the interface is in another network namespace, where it is somebody else's.
    async fn on_move(&mut self) {
        let Some(host) = self.host.take() else { return };
        let name = &self.config.name;
        let stays = match kill_switch(&self.config.interface) {
            Some(_) => "; the kill switch stays",
            None => "",
        };
        warn!("{name} has left this network namespace: its routes and rules are removed{stays}");
        if let Err(error) = host.release().await {
            warn!("{error}");
        }
        notify::status("the interface is in another network namespace");
    }

    async fn on_tunnel_event(&mut self, event: KeptEvent) {
        let now = Instant::now();
        match event {
            KeptEvent::Tunnel(TunnelEvent::Asks { id, fwmark, .. }) => {
                self.on_question(id, fwmark).await;
            }
            KeptEvent::Tunnel(TunnelEvent::Handshake { peer, answered }) => {
                self.addresses.handshake(&peer, answered, now);
                if answered {
                    self.path_mtu.handshake(&peer);
                }
            }
            KeptEvent::Tunnel(TunnelEvent::Ended { reason }) => {
                self.ending = Some(Ending::Tunnel(reason));
            }
            KeptEvent::Tunnel(TunnelEvent::Died) => {
                if let Some(tunnel) = &mut self.tunnel {
                    tunnel.died(now);
                }
            }
            KeptEvent::StartDue => self.start_again(now).await,
        }
    }

    async fn on_signal(&mut self, signal: SignalEvent) {
        match signal {
            SignalEvent::End(signal) => self.ending = Some(Ending::Signal(signal)),
            SignalEvent::Reload => {
                notify::reloading();
                match self.reload().await {
                    Ok(warnings) => warnings.iter().for_each(|warning| warn!("{warning}")),
                    Err(error) => warn!("the configuration stays as it is: {error:#}"),
                }
                notify::ready(&self.line());
            }
        }
    }

    fn on_resume(&mut self) {
        info!("The machine has slept");
        self.addresses.network_changed(Instant::now());
        self.path_mtu.want_all(&self.config);
    }

    /// Undoes a failed start; returns why it failed.
    async fn undo(self, error: anyhow::Error) -> anyhow::Error {
        let is_closed_early = self.is_closed_early;
        let name = self.config.name.clone();
        let mut undone = self.take_down().run().await;
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
            path: self.path,
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
        }
    }
}
