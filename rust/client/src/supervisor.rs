//! The supervisor: brings a tunnel up, keeps it and the host as the configuration wants them, and takes it down.
//!
//! ```text
//!  control socket ─┐                       ┌─▶ Host: addresses, routes, rules, DNS, kill switch
//!  signals ────────┤    supervision:       │
//!  host's events ──┼─▶ the one loop of ────┼─▶ the tunnel: configuration, handshakes, answers
//!  tunnel's events ┤ convoy_lifecycle's    │
//!  look-ups, sleep ┤      states           ├─▶ echo requests through the tunnel
//!  echoes, router ─┘                       └─▶ service manager, clients, subscribers
//! ```
//!
//! It has one thread, and no timer runs while nothing happens, except for a service manager's watchdog.

mod change;
mod directs;
mod follow;
mod log;
mod observe;
mod outer;
mod place;
mod port_forward;
mod port_map;
mod react;
mod replace;
mod start;
mod tell;

use std::{future::pending, net::IpAddr, path::PathBuf};

use anyhow::anyhow;
use convoy_config::{Config, InterfaceName};
use convoy_daemon::places;
use convoy_desired::directs::Directs;
use convoy_endpoints::Addresses;
use convoy_host::{Applied, Host, Lock};
use convoy_keeper::KeptTunnel;
use convoy_lifecycle::{self as lifecycle, Ending};
use convoy_metrics::DaemonArgs;
use convoy_path_mtu::PathMtu;
use convoy_process::{background::Parent, logging, terminal::Terminal};
use convoy_proto::config::PublicKey;
use convoy_supervision::{
    Life, Outside,
    control::{Control, Reply},
    events::{Events, What},
    notify,
    signals::Signals,
};
use tracing::{info, warn};

use super::{
    changed::Changed,
    metrics::Metrics,
    outer::Outer,
    port_forward::PortForward,
    port_map::PortMap,
    relays::Relays,
    state::State,
    take_down::{Remains, stays},
};

/// Options of the command line.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The configuration's absolute path.
    pub(crate) path: PathBuf,
    /// The program's absolute path, where another version may be installed later.
    pub(crate) program: PathBuf,
    pub(crate) config: Config,
    pub(crate) daemon: DaemonArgs,
    /// Whether to adopt the interface from wg-quick.
    pub(crate) adopts: bool,
    /// Output for warnings and hooks until the tunnel is up.
    pub(crate) terminal: Option<Terminal>,
}

/// Brings the tunnel up, serves it, and takes it down.
pub(crate) async fn run(wanted: Wanted, parent: &mut Option<Parent>) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    tokio::spawn(logging::live::keep());
    let (mut supervisor, start) = Supervisor::new(wanted).await?;
    let control = match supervisor.listen() {
        Ok(control) => control,
        Err(error) => return Err(supervisor.leave(error).await),
    };
    let mut outside = Outside::new(control, signals, pending());
    let mut life = Life::new(lifecycle::State::coming_up(start));
    supervisor.parent = parent.take();
    let ending = life.serve(&mut supervisor, &mut outside).await;
    *parent = supervisor.parent.take();

    let name = supervisor.config.name.clone();
    let stays = stays(&supervisor.config);
    if !ending.is_of_start() {
        supervisor.announce_end(&ending);
    }
    let failure = life.take_failure();
    let mut remains = supervisor.take_down();
    let down = life.take_down(&mut remains, &mut outside).await;
    if ending.is_of_start() {
        let warnings = Vec::new();
        outside.finish(&Reply::Done { warnings }).await;
        let cause = failure.unwrap_or_else(|| anyhow!("{ending}"));
        return Err(not_up(&name, cause, &ending, down.outcome()));
    }
    let outcome = down.outcome();
    let reply = match &outcome {
        Ok(notes) => Reply::Done {
            warnings: notes.iter().cloned().chain(stays).collect(),
        },
        Err(reason) => Reply::Failed {
            reason: reason.clone(),
        },
    };
    outside.finish(&reply).await;
    let notes = outcome.map_err(|reason| anyhow!(reason))?;
    notes.iter().for_each(|it| warn!("{it}"));
    match ending {
        Ending::Failed(_) => Err(anyhow!("the tunnel ended, though nobody asked: {ending}")),
        _ => Ok(()),
    }
}

/// Reports why a tunnel did not come up and what is left of it.
fn not_up(
    name: &InterfaceName,
    cause: anyhow::Error,
    ending: &Ending,
    undone: Result<Vec<String>, String>,
) -> anyhow::Error {
    let cause = match undone {
        Ok(_) => cause,
        Err(more) => anyhow!("{cause:#}\nand not everything could be undone: {more}"),
    };
    match ending {
        Ending::LeftRunning => anyhow!(
            "{cause:#}\nthe tunnel {name}, which was up, continues without a supervisor (fix: mend this, then \
             `convoy up` again)"
        ),
        Ending::NotUp {
            keeps_kill_switch: true,
        } => anyhow!(
            "{cause:#}\nthe kill switch of {name} was closed and stays so: `convoy down {name} \
             --open-kill-switch` opens it"
        ),
        _ => cause,
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
    /// Whether to adopt the interface from wg-quick.
    adopts: bool,
    /// The waiting command, to which the supervisor reports that the tunnel is up.
    parent: Option<Parent>,
    /// Output for warnings and hooks until the tunnel is up.
    terminal: Option<Terminal>,
    /// Facts kept for a later process.
    state: State,
    /// The state that an earlier supervisor left.
    earlier: Option<State>,
    /// `None` once the interface has left this network namespace.
    host: Option<Host>,
    /// Result of the configuration on the host.
    applied: Applied,
    /// `None` until it is started.
    tunnel: Option<KeptTunnel>,
    /// The mark of the tunnel's datagrams.
    mark: Option<u32>,
    /// The mark that was chosen because the configuration has none.
    picked_mark: Option<u32>,
    /// The tunnel after changes by other programs, for its next process.
    changed: Option<Changed>,
    addresses: Addresses,
    directs: Directs,
    relays: Relays,
    outer: Outer,
    /// Keeps the tunnel through which this one goes from coming up by itself.
    outer_lock: Option<Lock>,
    port_map: PortMap,
    port_forward: PortForward,
    /// The name servers that the host's current state allows.
    resolvers: Vec<IpAddr>,
    /// The public key of a private key that a hook has set.
    this_machine: Option<PublicKey>,
    path_mtu: PathMtu,
    events: Events,
    metrics: Option<Metrics>,
}

impl Supervisor {
    /// Opens the sockets on which this process answers.
    fn listen(&mut self) -> anyhow::Result<Control> {
        let name = &self.config.name;
        self.metrics = Metrics::serve(&self.daemon, name)?;
        Control::listen(&places::control(name))
    }

    /// Ends a start that has changed nothing; returns why it failed.
    async fn leave(mut self, error: anyhow::Error) -> anyhow::Error {
        let name = &self.config.name;
        if let Some(Err(more)) = self.outer_lock.take().map(Lock::release) {
            warn!("{more}");
        }
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

    /// Announces that the tunnel, which was up, is going down.
    fn announce_end(&mut self, ending: &Ending) {
        self.metrics = None;
        info!("Taking {} down: {ending}", self.config.name);
        notify::stopping();
        let reason = ending.to_string();
        self.events.publish(What::Down { reason });
    }

    fn take_down(self) -> Remains {
        Remains {
            name: self.config.name.clone(),
            config: Some(self.config),
            host: self.host,
            outer_lock: self.outer_lock,
            tunnel: self.tunnel,
            orphan: None,
            interface: None,
            port_mapping: self.port_map.to_note(self.state.mapping()),
            port_forward: self.port_forward.to_note(self.state.port_forward.as_ref()),
            picked_mark: self.picked_mark,
            terminal: self.terminal,
        }
    }
}
