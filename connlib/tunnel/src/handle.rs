//! Starting the tunnel's three threads, and talking to them.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, mpsc as answers},
    thread,
};

use convoy_gso::{BoundSockets, SocketOptions, UdpSockets};
use convoy_proto::{
    Planner,
    config::{DeviceUpdate, Snapshot},
};
use convoy_tun::{Coalesce, Device, spawn_reader, spawn_writer};
use tokio::{
    runtime,
    sync::{mpsc, watch},
};

use crate::{
    command::{COMMANDS, Command, Signals},
    event_loop::{EventLoop, Parts},
    metrics::Metrics,
};

/// Whether a kernel feature is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// Used where the kernel has it.
    #[default]
    Auto,
    /// Used; starting fails where the kernel does not have it.
    On,
    /// Not used.
    Off,
}

/// How the data path is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// UDP segmentation offload on send.
    pub gso: Switch,
    /// UDP receive offload.
    pub udp_gro: Switch,
    /// Packets in one batch: 1..=50.
    pub batch: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gso: Switch::Auto,
            udp_gro: Switch::Auto,
            batch: convoy_tun::MAX_BATCH_PACKETS,
        }
    }
}

/// Why the tunnel could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel does not have what was switched on.
    #[error("this kernel has no {feature}: leave {option} on auto")]
    Unsupported {
        /// What is missing.
        feature: &'static str,
        /// The option that asked for it.
        option: &'static str,
    },
    /// A thread, a socket or the event loop could not be had.
    #[error("cannot start the data path: {0}")]
    Io(#[from] io::Error),
}

/// Why a [`DeviceUpdate`] was refused; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The UDP sockets could not be opened on the port asked for.
    #[error("cannot open the UDP sockets on port {port}: {source}")]
    Sockets {
        /// The port asked for.
        port: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The firewall mark could not be set on the UDP sockets.
    #[error("cannot set the firewall mark {mark:#x}: {source}")]
    Fwmark {
        /// The mark asked for.
        mark: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The tunnel has ended.
    #[error("the tunnel has ended")]
    Closed,
}

/// The tunnel has ended.
#[derive(Debug, thiserror::Error)]
#[error("the tunnel has ended")]
pub struct Closed;

/// Why the tunnel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// [`Tunnel::stop`] was called, or every handle is gone.
    Stopped,
    /// The interface was deleted.
    InterfaceDeleted,
    /// Something failed that cannot be repaired.
    Failed(String),
}

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
    /// Held while a change is prepared and applied, so that changes do not overtake each other.
    configuration: Mutex<Configuration>,
    receive_offload: bool,
}

#[derive(Debug, Default)]
struct Configuration {
    planner: Planner,
    port: u16,
    fwmark: u32,
}

impl Tunnel {
    /// Starts the threads `tun-reader`, `tunnel` and `tun-writer` on `device`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(device: Device, options: Options) -> Result<Self, StartError> {
        let receive_offload = options.udp_gro != Switch::Off;
        let bound = BoundSockets::open(SocketOptions {
            port: 0,
            fwmark: 0,
            receive_offload,
        })?;
        let port = bound.port();
        let (commands, command_receiver) = mpsc::channel(COMMANDS);
        let (signals, signal_receiver) = watch::channel(Signals::default());
        let (exit_sender, exit) = watch::channel(None);
        let (started, start) = answers::sync_channel(1);
        thread::Builder::new()
            .name("tunnel".to_owned())
            .spawn(move || {
                let channels = (command_receiver, signal_receiver);
                run(device, options, bound, channels, &started, &exit_sender);
            })?;
        start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the event loop's thread ended").into()))?;
        Ok(Self {
            shared: Arc::new(Shared {
                commands,
                signals,
                exit,
                configuration: Mutex::new(Configuration {
                    port,
                    ..Configuration::default()
                }),
                receive_offload,
            }),
        })
    }

    /// Applies `update`, whole or not at all; blocks until the data path uses it.
    ///
    /// Opens sockets and computes keys on the caller's thread; not to be called on a tokio one.
    ///
    /// # Errors
    /// See [`ApplyError`]; then nothing was changed.
    pub fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        let configuration = &mut *self
            .shared
            .configuration
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fwmark = update.fwmark.unwrap_or(configuration.fwmark);
        let wanted = update
            .listen_port
            .filter(|port| *port != configuration.port);
        let sockets = wanted
            .map(|port| self.open_sockets(port, fwmark))
            .transpose()?;
        let port = sockets.as_ref().map(BoundSockets::port);
        // The last thing that can fail.
        self.command(|done| Command::Prepare {
            sockets,
            fwmark,
            done,
        })?
        .map_err(|source| match port {
            Some(port) => ApplyError::Sockets { port, source },
            None => ApplyError::Fwmark {
                mark: fwmark,
                source,
            },
        })?;
        let plan = Box::new(configuration.planner.plan(update));
        self.command(|done| Command::Apply { plan, done })?;
        configuration.fwmark = fwmark;
        configuration.port = port.unwrap_or(configuration.port);
        Ok(())
    }

    /// The device and its peers now; blocks until the data path answers.
    ///
    /// # Errors
    /// [`Closed`] once the tunnel has ended.
    pub fn snapshot(&self) -> Result<Snapshot, Closed> {
        self.command(|answer| Command::Snapshot { answer })
            .map(|snapshot| *snapshot)
    }

    /// Tells the data path the interface's MTU in bytes.
    pub fn set_mtu(&self, mtu: u16) {
        self.shared.signals.send_modify(|s| s.mtu = Some(mtu));
    }

    /// Asks the threads to end; [`Tunnel::wait`] tells when they have.
    pub fn stop(&self) {
        self.shared.signals.send_modify(|s| s.stop = true);
    }

    /// Waits until the tunnel has ended, and says why.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.shared.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or(Exit::Stopped),
            Err(_) => Exit::Failed("the event loop panicked".to_owned()),
        }
    }

    fn open_sockets(&self, port: u16, fwmark: u32) -> Result<BoundSockets, ApplyError> {
        BoundSockets::open(SocketOptions {
            port,
            fwmark,
            receive_offload: self.shared.receive_offload,
        })
        .map_err(|source| ApplyError::Sockets { port, source })
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

impl From<Closed> for ApplyError {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}

/// The thread `tunnel`.
fn run(
    device: Device,
    options: Options,
    bound: BoundSockets,
    (commands, signals): (mpsc::Receiver<Command>, watch::Receiver<Signals>),
    started: &answers::SyncSender<Result<(), StartError>>,
    exit: &watch::Sender<Option<Exit>>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error.into()))),
    };
    runtime.block_on(async {
        match event_loop(&device, &options, bound, commands, signals) {
            Ok(event_loop) => {
                let _ = started.send(Ok(()));
                let why = event_loop.run().await;
                exit.send_replace(Some(why));
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
}

fn event_loop(
    device: &Device,
    options: &Options,
    bound: BoundSockets,
    commands: mpsc::Receiver<Command>,
    signals: watch::Receiver<Signals>,
) -> Result<EventLoop, StartError> {
    let sockets = UdpSockets::register(bound)?;
    let supported = sockets.segmentation();
    let missing = |feature, option| StartError::Unsupported { feature, option };
    if options.gso == Switch::On && !supported {
        return Err(missing("UDP segmentation offload (UDP_SEGMENT)", "--gso"));
    }
    if options.udp_gro == Switch::On && !sockets.receive_offload() {
        return Err(missing("UDP receive offload (UDP_GRO)", "--udp-gro"));
    }
    let coalesce = Coalesce {
        tcp: true,
        udp: true,
    };
    let event_loop = EventLoop::new(Parts {
        reader: spawn_reader(device, options.batch)?,
        writer: spawn_writer(device, coalesce)?,
        sockets,
        segmentation: supported && options.gso != Switch::Off,
        batch: options.batch.clamp(1, convoy_tun::MAX_BATCH_PACKETS),
        metrics: Metrics::new(device.offload()),
        commands,
        signals,
    })?;
    Ok(event_loop)
}
