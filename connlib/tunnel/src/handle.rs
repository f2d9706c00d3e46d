//! A handle that starts the tunnel's three threads and sends commands to the event loop.

use std::{
    io,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as answers},
    thread,
};

use convoy_gso::{BoundSockets, SocketOptions, udp::Privileged};
use convoy_proto::{
    PeerEvent, Planner,
    config::{DeviceUpdate, Directs, PublicKey, Relay, Snapshot},
};
use convoy_tun::Device;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    command::{COMMANDS, Command, HANDSHAKE_EVENTS, Requests, Signals},
    error::{ApplyError, Closed, Exit, StartError},
    options::{Options, Switch},
    outer::{Outer, OuterPlanner},
    start,
};

/// A running tunnel: a handle that may be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct Tunnel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: mpsc::Sender<Command>,
    signals: watch::Sender<Signals>,
    exit: watch::Receiver<Option<Exit>>,
    handshake_events: tokio::sync::Mutex<mpsc::Receiver<PeerEvent>>,
    /// Held while a change is prepared and applied, so that changes do not overtake each other.
    configuration: Mutex<Configuration>,
    has_outer: bool,
    outer: Mutex<OuterPlanner>,
    receive_offload: bool,
    privileged: Arc<dyn Privileged>,
}

#[derive(Debug, Default)]
struct Configuration {
    planner: Planner,
    /// The requested port, or the kernel's choice; 0 until it has chosen.
    port: u16,
    fwmark: u32,
    is_up: bool,
    /// Whether there are sockets: the link is up, and the port was free.
    is_bound: bool,
}

impl Tunnel {
    /// Starts the threads `tun-reader`, `tunnel` and `tun-writer` on `device`. They log in the caller's span.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(device: Device, options: Options) -> Result<Self, StartError> {
        let receive_offload = options.udp_gro != Switch::Off;
        let privileged = Arc::clone(&options.privileged);
        let bound = BoundSockets::open(SocketOptions {
            port: 0,
            fwmark: 0,
            receive_offload,
            privileged: Arc::clone(&privileged),
        })?;
        let port = if options.is_up { bound.port() } else { 0 };
        let (is_up, has_outer) = (options.is_up, options.has_outer);
        let (commands, command_receiver) = mpsc::channel(COMMANDS);
        let (signals, signal_receiver) = watch::channel(Signals::default());
        let (exit_sender, exit) = watch::channel(None);
        let (event_sender, handshake_events) = mpsc::channel(HANDSHAKE_EVENTS);
        let (started, start) = answers::sync_channel(1);
        let span = tracing::Span::current();
        thread::Builder::new()
            .name("tunnel".to_owned())
            .spawn(move || {
                let _interface = span.entered();
                let handle = start::Handle {
                    requests: Requests::new(command_receiver, signal_receiver),
                    handshake_events: event_sender,
                };
                start::run(device, options, bound, handle, &started, &exit_sender);
            })?;
        start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the event loop's thread ended").into()))?;
        Ok(Self {
            shared: Arc::new(Shared {
                commands,
                signals,
                exit,
                handshake_events: tokio::sync::Mutex::new(handshake_events),
                configuration: Mutex::new(Configuration {
                    port,
                    is_up,
                    is_bound: is_up,
                    ..Configuration::default()
                }),
                has_outer,
                outer: Mutex::default(),
                receive_offload,
                privileged,
            }),
        })
    }

    /// Applies `update` as a whole or not at all; blocks until the data path uses it.
    ///
    /// Opens sockets and computes keys on the caller's thread.
    ///
    /// # Errors
    /// See [`ApplyError`]; then nothing was changed.
    ///
    /// # Panics
    /// In an asynchronous context of tokio.
    pub fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        let configuration = &mut *self.configuration();
        if self.outer_planner().is_concerned(&update) {
            return Err(ApplyError::PeerOfOuter);
        }
        let fwmark = update.fwmark.unwrap_or(configuration.fwmark);
        let port = update.listen_port.unwrap_or(configuration.port);
        let is_asked = update.listen_port.is_some();
        let is_other = port != configuration.port || !configuration.is_bound;
        let is_rebound = configuration.is_up && is_asked && is_other;
        if !configuration.is_up {
            // Report now, not only when the link comes up, a port or a mark that cannot be set.
            if is_asked && is_other && port != 0 {
                drop(self.open_sockets(port, configuration.fwmark)?);
            }
            if fwmark != configuration.fwmark {
                let mark = |source| ApplyError::Fwmark {
                    mark: fwmark,
                    source,
                };
                drop(self.open(0, fwmark).map_err(mark)?);
            }
        }
        if configuration.is_bound && !is_rebound && fwmark != configuration.fwmark {
            self.mark_sockets(fwmark)?;
        }
        // The last thing that can fail.
        let port = self
            .prepare(is_rebound.then_some(port), fwmark)?
            .unwrap_or(port);
        let plan = Box::new(configuration.planner.plan(update));
        self.command(|done| Command::Apply { plan, port, done })?;
        configuration.fwmark = fwmark;
        configuration.port = port;
        if is_rebound && !configuration.is_bound {
            self.link(configuration, true)?;
        }
        Ok(())
    }

    /// Follows the link: sockets are open and sessions exist only while it is up.
    ///
    /// Blocks until the data path has followed.
    ///
    /// # Errors
    /// [`ApplyError::Sockets`] if the port cannot be bound: the tunnel stays down until this is called again
    /// or another port is set. [`ApplyError::Closed`] once the tunnel has ended.
    ///
    /// # Panics
    /// In an asynchronous context of tokio.
    pub fn set_link(&self, is_up: bool) -> Result<(), ApplyError> {
        let configuration = &mut *self.configuration();
        if configuration.is_up == is_up && configuration.is_bound == is_up {
            return Ok(());
        }
        configuration.is_up = is_up;
        if !is_up {
            return self.link(configuration, false);
        }
        match self.prepare(Some(configuration.port), configuration.fwmark) {
            Ok(bound) => {
                configuration.port = bound.unwrap_or(configuration.port);
                self.link(configuration, true)
            }
            Err(refused) => {
                // Otherwise packets from the interface would pile up.
                self.link(configuration, false)?;
                Err(refused)
            }
        }
    }

    /// The present state of the device and its peers; blocks until the data path answers.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    ///
    /// # Panics
    /// In an asynchronous context of tokio.
    pub fn snapshot(&self) -> Result<Snapshot, Closed> {
        self.command(|answer| Command::Snapshot { answer })
            .map(|listing| listing.into_snapshot())
    }

    /// Passes the interface's MTU, in bytes, to the data path.
    pub fn set_mtu(&self, mtu: u16) {
        self.shared.signals.send_modify(|s| s.mtu = Some(mtu));
    }

    /// Call when routes or rules have changed: source addresses and refusals of segmentation are checked
    /// again.
    pub fn routes_changed(&self) {
        let count = |s: &mut Signals| s.routes = s.routes.wrapping_add(1);
        self.shared.signals.send_modify(count);
    }

    /// Call when the wall clock was set. If it was set forward, new handshakes carry the new time.
    pub fn restamp(&self) {
        let count = |s: &mut Signals| s.wall_clock = s.wall_clock.wrapping_add(1);
        self.shared.signals.send_modify(count);
    }

    /// Reports the handshakes of these peers from now on, and of no others, by
    /// [`Tunnel::next_handshake_event`]. They need not exist yet.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub async fn follow(&self, peers: &[PublicKey]) -> Result<(), Closed> {
        // Nobody has received these, and their time has passed.
        if let Ok(mut events) = self.shared.handshake_events.try_lock() {
            while events.try_recv().is_ok() {}
        }
        let of_outer = match self.shared.has_outer {
            true => peers,
            false => &[],
        };
        let followed = |peers: &[PublicKey]| peers.iter().copied().collect();
        let peers = Box::new([followed(peers), followed(of_outer)]);
        let former = self.request(|done| Command::Follow { peers, done });
        former.await.map(drop)
    }

    /// Begins handshakes with these peers at once, from any source address, even if one is in progress: call
    /// it when the network has changed. Peers that are unknown or have no endpoint are left out.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub async fn handshake_now(&self, peers: &[PublicKey]) -> Result<(), Closed> {
        let peers = Vec::from(peers);
        let rest = self.request(|done| Command::Handshake {
            peers: peers.into_iter(),
            done,
        });
        rest.await.map(drop)
    }

    /// Sets the direct paths, instead of the former ones. A peer that stays keeps its session and its path.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub async fn set_directs(&self, directs: Directs) -> Result<(), Closed> {
        let directs = Box::new(directs);
        let former = self.request(|done| Command::Directs { directs, done });
        former.await.map(drop)
    }

    /// Sets the outer tunnel, instead of the former one, of a tunnel that was started with
    /// [`Options::has_outer`]; ignored by any other. Peers that stay keep their sessions.
    ///
    /// Computes keys on the caller's thread.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub async fn set_outer(&self, outer: Outer) -> Result<(), Closed> {
        let plan = Box::new(self.outer_planner().plan(outer));
        self.request(|done| Command::Outer { plan, done }).await
    }

    /// Sets the TURN servers, the preferred one first, instead of the former ones. A server that stays keeps its
    /// allocation.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub async fn set_relays(&self, relays: Vec<Relay>) -> Result<(), Closed> {
        let former = self.request(|done| Command::Relays { relays, done });
        former.await.map(drop)
    }

    /// The next event of a followed peer's handshakes: its latest. Waits forever once the tunnel has ended.
    ///
    /// Cancel-safe. Each event goes to one caller.
    pub async fn next_handshake_event(&self) -> PeerEvent {
        match self.shared.handshake_events.lock().await.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Asks the threads to end; [`Tunnel::wait`] completes when the event loop has.
    pub fn stop(&self) {
        self.shared.signals.send_modify(|s| s.stop = true);
    }

    /// Waits until the tunnel has ended; returns the reason.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.shared.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or(Exit::Stopped),
            Err(_) => Exit::Failed("the event loop panicked".to_owned()),
        }
    }

    fn configuration(&self) -> MutexGuard<'_, Configuration> {
        self.shared
            .configuration
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn outer_planner(&self) -> MutexGuard<'_, OuterPlanner> {
        let planner = self.shared.outer.lock();
        planner.unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, configuration: &mut Configuration, is_up: bool) -> Result<(), ApplyError> {
        let port = configuration.port;
        self.command(|done| Command::Link { is_up, port, done })?;
        configuration.is_bound = is_up;
        Ok(())
    }

    /// Sets the mark of the present sockets: on this thread, as the event loop must not wait.
    fn mark_sockets(&self, mark: u32) -> Result<(), ApplyError> {
        let sockets = self.command(|answer| Command::Descriptors { answer })?;
        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let marked = self.shared.privileged.prepare(&sockets, mark);
        marked.map_err(|source| ApplyError::Fwmark { mark, source })
    }

    /// Opens sockets on `port`, if given, with the mark; returns the port that was bound.
    fn prepare(&self, port: Option<u16>, fwmark: u32) -> Result<Option<u16>, ApplyError> {
        let sockets = port
            .map(|port| self.open_sockets(port, fwmark))
            .transpose()?;
        let port = sockets.as_ref().map(BoundSockets::port);
        let prepared = self.command(|done| Command::Prepare {
            sockets,
            fwmark,
            done,
        })?;
        prepared.map_err(|source| match port {
            Some(port) => ApplyError::Sockets { port, source },
            None => ApplyError::Fwmark {
                mark: fwmark,
                source,
            },
        })?;
        Ok(port)
    }

    fn open_sockets(&self, port: u16, fwmark: u32) -> Result<BoundSockets, ApplyError> {
        self.open(port, fwmark)
            .map_err(|source| ApplyError::Sockets { port, source })
    }

    fn open(&self, port: u16, fwmark: u32) -> io::Result<BoundSockets> {
        BoundSockets::open(SocketOptions {
            port,
            fwmark,
            receive_offload: self.shared.receive_offload,
            privileged: Arc::clone(&self.shared.privileged),
        })
    }

    async fn request<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Closed> {
        let (answer, answered) = oneshot::channel();
        let sent = self.shared.commands.send(command(answer)).await;
        sent.map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }

    fn command<T>(
        &self,
        command: impl FnOnce(answers::SyncSender<T>) -> Command,
    ) -> Result<T, Closed> {
        let (answer, answered) = answers::sync_channel(1);
        self.shared
            .commands
            .blocking_send(command(answer))
            .map_err(|_| Closed)?;
        answered.recv().map_err(|_| Closed)
    }
}
