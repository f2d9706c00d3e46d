//! Keeps a tunnel's process alive: restarts it when it dies, with the same interface.
//!
//! 1. [`KeptTunnel`] starts a process, takes over one that a dead supervisor left, and decides when to start another.
//! 2. [`tunnel`] is one process: it is configured, asked and ended.
//! 3. [`privileges`] is the hidden command: it becomes the daemon with what a supervisor hands over.
//!
//! Supervisors call it, as root and without, and whoever asks a running tunnel. It changes no route, rule, name server
//! or firewall of the host, reads no configuration, and decides nothing about peers.

pub mod privileges;
mod restarts;
pub mod tunnel;

use std::{
    fs::{self, Permissions},
    future::pending,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream as StdUnixStream},
        },
    },
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context;
use convoy_config::InterfaceName;
use convoy_daemon::{
    args::TunnelOptions,
    places::{self, Sockets},
    supervised::{protocol::BUILD, start::Start},
};
use convoy_lifecycle::{Effect, Event, KillSwitch};
use convoy_process::socket::{self, ENDING_PAUSE, ENDING_TIME};
use convoy_tun::Device;
use nix::unistd::Pid;
use tokio::{
    task::JoinSet,
    time::{sleep, sleep_until, timeout_at},
};
use tracing::{error, info, warn};

use crate::tunnel::{Adopted, Spawn, TunnelEvent, TunnelProcess};
use restarts::Restarts;

/// The reason given for a process whose interface is gone.
const INTERFACE_DELETED: &str = "the interface was deleted";

/// An event of the tunnel, for its supervisor.
#[derive(Debug)]
pub enum KeptEvent {
    /// The process has sent an event.
    Tunnel(TunnelEvent),
    /// It is time for [`Effect::StartAgain`].
    StartDue,
    /// A new process runs and has no configuration yet.
    Started,
}

impl KeptEvent {
    /// Returns an event for the tunnel's state to decide about, or else the tunnel's own, for its supervisor alone.
    /// `kill_switch` is the configuration's.
    pub fn decided(self, kill_switch: KillSwitch) -> Result<Event, TunnelEvent> {
        match self {
            Self::Tunnel(TunnelEvent::Asks { id, fwmark, .. }) => {
                Ok(Event::MarkAsked { id, fwmark })
            }
            Self::Tunnel(TunnelEvent::Ended { reason }) => Ok(Event::TunnelEnds {
                reason,
                kill_switch,
            }),
            Self::Tunnel(TunnelEvent::Died) => Ok(Event::TunnelDied),
            Self::Tunnel(event) => Err(event),
            Self::StartDue => Ok(Event::StartDue),
            Self::Started => Ok(Event::TunnelStarted),
        }
    }
}

/// A tunnel and everything that its next process needs.
#[derive(Debug)]
pub struct KeptTunnel {
    name: InterfaceName,
    /// Settings of the next process.
    settings: Start,
    sockets: Sockets,
    /// The interface's descriptor. While it is open, the interface outlives its process, unless it is deleted.
    tun: OwnedFd,
    /// Whether the interface was recreated and the host is not set up for it yet.
    is_interface_new: bool,
    process: Option<TunnelProcess>,
    /// Time at which to kill the process, which no longer has an interface.
    kill_at: Option<Instant>,
    /// Reasons for the end of the present process and of the last one, if known.
    reason: Option<String>,
    last_reason: Option<String>,
    restarts: Restarts,
    /// Time at which to start another process.
    due: Option<Instant>,
    /// The next process while it is starting.
    starting: JoinSet<anyhow::Result<TunnelProcess>>,
}

impl KeptTunnel {
    /// Creates the interface and starts a process for it.
    pub async fn start(
        name: &InterfaceName,
        options: &TunnelOptions,
        has_outer: bool,
    ) -> anyhow::Result<Self> {
        let tun = make(name, options)?;
        let mut tunnel = Self::new(name, options, tun, None);
        tunnel.settings.has_outer = has_outer;
        tunnel.begin().await
    }

    /// Starts a process for an interface that it cannot watch, in another network namespace or a stack in user
    /// space; the process ends with this one.
    pub async fn over(
        tun: OwnedFd,
        mtu: u16,
        name: &InterfaceName,
        options: &TunnelOptions,
        sockets: Sockets,
    ) -> anyhow::Result<Self> {
        let mut tunnel = Self::new(name, options, tun, None);
        tunnel.sockets = sockets;
        tunnel.settings.outlives_supervisor = false;
        tunnel.settings.inner_mtu = Some(mtu);
        tunnel.begin().await
    }

    async fn begin(mut self) -> anyhow::Result<Self> {
        self.process = Some(TunnelProcess::spawn(self.next_process()?).await?);
        Ok(self)
    }

    /// Takes over a process that an earlier supervisor left; `None` if there is none.
    pub async fn adopt(
        name: &InterfaceName,
        options: &TunnelOptions,
        has_outer: bool,
    ) -> anyhow::Result<Option<Self>> {
        let Some(adopted) = adopt(name).await? else {
            return Ok(None);
        };
        let mut tunnel = Self::new(name, options, adopted.tun, Some(adopted.process));
        tunnel.settings.has_outer = has_outer;
        Ok(Some(tunnel))
    }

    fn new(
        name: &InterfaceName,
        options: &TunnelOptions,
        tun: OwnedFd,
        process: Option<TunnelProcess>,
    ) -> Self {
        Self {
            name: name.clone(),
            settings: Start {
                options: options.clone(),
                outlives_supervisor: true,
                inner_mtu: None,
                has_outer: false,
                log: tunnel::log(),
            },
            sockets: places::sockets(name),
            tun,
            is_interface_new: false,
            process,
            kill_at: None,
            reason: None,
            last_reason: None,
            restarts: Restarts::default(),
            due: None,
            starting: JoinSet::new(),
        }
    }

    /// Returns the process; `None` while there is none.
    pub fn process(&mut self) -> Option<&mut TunnelProcess> {
        self.process.as_mut()
    }

    /// Returns the process's number.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(TunnelProcess::pid)
    }

    /// Returns whether there is a process; its death may not have been noticed yet.
    pub fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(TunnelProcess::is_running)
    }

    /// Returns whether the process must be replaced: it is of another version of this program, or has an outer tunnel
    /// although it should not, or the reverse.
    pub fn is_of_another_version(&self) -> bool {
        let is_other = |it: &TunnelProcess| it.version() != BUILD;
        self.process.as_ref().is_some_and(is_other) || self.takes_another_way()
    }

    /// Returns whether the process goes through another tunnel though it should not, or the reverse: it must get no
    /// peer.
    pub fn takes_another_way(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|it| it.has_outer() != self.settings.has_outer)
    }

    /// Number of times that the process has died.
    pub fn deaths(&self) -> u64 {
        self.restarts.deaths
    }

    /// Reason for the end of the last process, if known.
    pub fn last_reason(&self) -> Option<&str> {
        self.last_reason.as_deref()
    }

    /// Returns whether the interface is still there, in whatever network namespace.
    fn has_interface(&self) -> bool {
        Device::is_attached(self.tun.as_fd())
    }

    /// Returns whether the host has to be set up for another interface.
    pub fn is_interface_new(&self) -> bool {
        self.is_interface_new
    }

    /// Call when the host is set up for the interface.
    pub fn interface_is_set_up(&mut self) {
        self.is_interface_new = false;
    }

    /// Performs an effect that concerns the process alone.
    pub async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AllowMark { id, fwmark } => {
                if let Some(process) = self.process()
                    && let Err(error) = process.answer(id, fwmark, None).await
                {
                    warn!("cannot answer the tunnel: {error:#}");
                }
            }
            // The event may concern an interface that has been replaced.
            Effect::ReplaceInterface if !self.has_interface() => self.interface_deleted(),
            Effect::NoteReason(reason) => {
                warn!("The tunnel process says that it ends: {reason}");
                self.reason = Some(reason);
            }
            Effect::NoteDeath => self.died(),
            Effect::StartAgain => self.start_again(),
            Effect::FinishTunnel => self.finish().await,
            _ => {}
        }
    }

    /// Waits for the next event. May be cancelled.
    pub async fn next(&mut self) -> KeptEvent {
        loop {
            if let Some(process) = &mut self.process {
                let event = match self.kill_at {
                    Some(at) => timeout_at(at.into(), process.next()).await.ok(),
                    None => Some(process.next().await),
                };
                let Some(event) = event else {
                    process.kill().await;
                    return KeptEvent::Tunnel(TunnelEvent::Died);
                };
                return KeptEvent::Tunnel(event);
            }
            if let Some(started) = self.starting.join_next().await {
                match started.map_err(anyhow::Error::from).flatten() {
                    Ok(process) => {
                        self.started(process);
                        return KeptEvent::Started;
                    }
                    Err(error) => self.failed(&error),
                }
                continue;
            }
            match self.due {
                Some(due) => sleep_until(due.into()).await,
                None => pending().await,
            }
            return KeptEvent::StartDue;
        }
    }

    /// Records that the interface was deleted: the process is now useless and has a moment to end.
    fn interface_deleted(&mut self) {
        self.reason = Some(INTERFACE_DELETED.to_owned());
        self.kill_at = self.process.as_ref().map(|_| Instant::now() + ENDING_TIME);
    }

    /// Records the death of the process and schedules another.
    fn died(&mut self) {
        self.process = None;
        self.kill_at = None;
        if !self.has_interface() {
            self.reason = Some(INTERFACE_DELETED.to_owned());
        }
        self.schedule(Instant::now());
    }

    /// Ends a process that cannot be used and schedules another.
    pub async fn fail(&mut self, reason: String) {
        if let Some(process) = &mut self.process {
            process.kill().await;
        }
        self.reason = Some(reason);
        self.died();
    }

    /// Waits for a process that is ending and will not be replaced.
    async fn finish(&mut self) {
        self.due = None;
        self.starting.shutdown().await;
        if let Some(process) = self.process.take()
            && let Err(error) = process.stop().await
        {
            warn!("{error:#}");
        }
    }

    /// Starts another process for the same interface. If that fails, schedules another attempt.
    fn start_again(&mut self) {
        self.due = None;
        match self.next_process() {
            Ok(next) => drop(self.starting.spawn(TunnelProcess::spawn(next))),
            Err(error) => self.failed(&error),
        }
    }

    /// Replaces the process by one of this version, keeping the interface.
    pub async fn replace(&mut self) -> anyhow::Result<()> {
        if let Some(former) = self.process.take() {
            former.stop().await?;
        }
        self.process = Some(TunnelProcess::spawn(self.next_process()?).await?);
        Ok(())
    }

    /// Ends the process and removes its sockets; the interface goes once the result is dropped.
    pub async fn stop(mut self) -> anyhow::Result<OwnedFd> {
        self.starting.shutdown().await;
        let stopped = match self.process {
            Some(process) => process.stop().await,
            None => Ok(()),
        };
        self.sockets.remove();
        stopped.map(|()| self.tun)
    }

    fn schedule(&mut self, now: Instant) {
        let pause = self.restarts.died(now);
        self.due = Some(now + pause);
        self.last_reason = self.reason.take();
        let reason = self.last_reason.as_ref();
        let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        match pause {
            Duration::ZERO => warn!("The tunnel process died{reason}"),
            pause => warn!(
                "The tunnel process died again{reason}; another one starts in {} s",
                pause.as_secs()
            ),
        }
    }

    fn started(&mut self, process: TunnelProcess) {
        self.kill_at = None;
        info!("Started another tunnel process");
        self.process = Some(process);
        self.restarts.started(Instant::now());
    }

    fn failed(&mut self, error: &anyhow::Error) {
        error!("cannot start the tunnel again: {error:#}");
        self.reason = Some(format!("{error:#}"));
        self.schedule(Instant::now());
    }

    /// Prepares another process, with fresh sockets. Recreates the interface if it was deleted.
    fn next_process(&mut self) -> anyhow::Result<Spawn> {
        if self.settings.outlives_supervisor && !self.has_interface() {
            self.tun = make(&self.name, &self.settings.options)?;
            self.is_interface_new = true;
            warn!("The interface {} was deleted; made another one", self.name);
        }
        let uapi = &self.sockets.uapi;
        let uapi = bind(uapi).and_then(|socket| {
            // Read permission does not allow connecting: the tunnel's user only watches the socket for removal.
            fs::set_permissions(uapi, Permissions::from_mode(0o604))?;
            Ok(socket)
        })?;
        Ok(Spawn {
            name: self.name.clone(),
            settings: self.settings.clone(),
            descriptors: [
                self.tun.try_clone()?,
                uapi.into(),
                bind(&self.sockets.supervisors)?.into(),
            ],
            sockets: self.sockets.clone(),
        })
    }
}

/// Waits for the next event; for ever without a tunnel. May be cancelled.
pub async fn next_of(tunnel: &mut Option<KeptTunnel>) -> KeptEvent {
    match tunnel {
        Some(tunnel) => tunnel.next().await,
        None => pending().await,
    }
}

/// Takes over the process of an earlier supervisor, if there is one. Waits for one that was still being started when
/// its supervisor died: it closes the connection as it ends.
pub async fn adopt(name: &InterfaceName) -> anyhow::Result<Option<Adopted>> {
    let deadline = Instant::now() + ENDING_TIME;
    loop {
        match TunnelProcess::adopt(name).await {
            Err(_) if Instant::now() < deadline => sleep(ENDING_PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Creates the interface.
fn make(name: &InterfaceName, options: &TunnelOptions) -> anyhow::Result<OwnedFd> {
    let device = Device::open(name.as_str(), options.tun_offload)?;
    let tun = device.as_fd().try_clone_to_owned();
    tun.context("cannot duplicate the interface's descriptor")
}

/// Listens, even at the address of a dead process.
fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    socket::bind(path).map(|(listener, _)| listener)
}

/// Removes the sockets of a tunnel that has ended.
pub fn remove_sockets(name: &InterfaceName) {
    places::sockets(name).remove();
}

/// Removes the sockets that a killed tunnel left, but not those of another program.
pub fn remove_dead_sockets(name: &InterfaceName) {
    for path in [places::uapi(name), places::tunnel(name)] {
        let connected = StdUnixStream::connect(&path);
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(path);
        }
    }
}
