//! The daemon's life cycle, from opening the device to shutdown.

use std::{
    convert::Infallible,
    os::unix::net::UnixListener,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use convoy_aead::{Aead, WhyRing};
use convoy_tun::{Device, OpenError};
use convoy_tunnel::{Exit, Options, Tunnel};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, error, info, warn};

use crate::{
    background::{self, Parent},
    cli::{DaemonArgs, InterfaceName, LogFormat},
    confine, link_monitor, logging, panics, process,
    uapi::{
        Server,
        socket::{self, SocketFile},
    },
    wall_clock,
};

/// MTU of a new interface in bytes, as in wireguard-go: fits a 1,500-byte link over IPv6.
const DEFAULT_MTU: u16 = 1420;

/// How long the threads may take to end after they are asked to.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Starts the daemon for `interface` in the background, or runs it here until it ends.
pub(crate) fn start(interface: &InterfaceName, args: &DaemonArgs) -> anyhow::Result<()> {
    let mut parent = Parent::detach()?;
    if parent.is_none() && !args.foreground {
        return background::start();
    }
    let outcome = logging::init(args.log_format).and_then(|()| run(interface, args, &mut parent));
    if let Err(error) = &outcome {
        if let Some(parent) = parent {
            parent.fail(error);
        }
        // A program that reads the JSON log does not read text from stderr.
        if args.log_format == LogFormat::Json {
            error!("{error:#}");
        }
    }
    outcome
}

fn run(
    interface: &InterfaceName,
    args: &DaemonArgs,
    parent: &mut Option<Parent>,
) -> anyhow::Result<()> {
    process::forbid_core_dumps();
    process::bound_freed_memory();
    panics::end_process(None);
    let resources = Resources::acquire(interface, args)?;
    panics::end_process(resources.socket_file.clone());
    let socket_file = resources.socket_file.clone();
    // Before there is another thread.
    confine::confine(socket_file.as_ref())?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the main thread's runtime")?;
    let outcome = runtime.block_on(serve(resources, args, parent));
    // Do not wait for tasks that wait for the data path or compute keys.
    runtime.shutdown_background();
    if let Some(file) = socket_file {
        file.remove();
    }
    outcome
}

/// Everything the tunnel needs before it starts.
struct Resources {
    device: Device,
    /// The kernel's name for the interface; an adopted device brings its own.
    interface: String,
    listener: UnixListener,
    /// `None` if the UAPI socket has no file.
    socket_file: Option<SocketFile>,
}

impl Resources {
    fn acquire(interface: &InterfaceName, args: &DaemonArgs) -> anyhow::Result<Self> {
        let uapi_fd = process::inherited_fd("WG_UAPI_FD")?;
        let device = match process::inherited_fd("WG_TUN_FD")? {
            Some(fd) => Device::adopt(fd).context("cannot use the TUN device of WG_TUN_FD")?,
            None => {
                if uapi_fd.is_none() {
                    // Reports the cause, where the kernel would only say that the name is taken.
                    let is_gone = || nix::net::if_::if_nametoindex(interface.as_str()).is_err();
                    socket::ensure_unused(&socket::path(interface.as_str()), is_gone)?;
                }
                open(interface, args)?
            }
        };
        if let Err(error) = device.set_mtu(DEFAULT_MTU) {
            warn!("cannot set the interface's MTU: {error}");
        }
        let interface = device.name().context("cannot read the interface's name")?;
        let (listener, socket_file) = match uapi_fd {
            Some(fd) => socket::adopt(fd)?,
            None => {
                let (listener, file) = socket::bind(&socket::path(&interface))?;
                (listener, Some(file))
            }
        };
        Ok(Self {
            device,
            interface,
            listener,
            socket_file,
        })
    }
}

/// Opens a new device. If a killed daemon still holds one of that name, waits for it to die.
fn open(interface: &InterfaceName, args: &DaemonArgs) -> Result<Device, OpenError> {
    let deadline = Instant::now() + socket::ENDING_TIME;
    loop {
        match Device::open(interface.as_str(), args.tun_offload.into()) {
            Err(OpenError::Busy(_)) if Instant::now() < deadline => {
                thread::sleep(socket::ENDING_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Runs the tunnel until something ends it.
async fn serve(
    resources: Resources,
    args: &DaemonArgs,
    parent: &mut Option<Parent>,
) -> anyhow::Result<()> {
    let interface = resources.interface;
    let device = resources.device;
    let mut interrupted = Interrupted::new()?;
    let aead = Aead::from(args.aead);
    match aead.why_ring() {
        Some(reason @ WhyRing::SelfTestFailed) => {
            warn!(%reason, "Packets are sealed one by one with ring");
        }
        Some(reason) => debug!(%reason, "Packets are sealed one by one with ring"),
        None => debug!(
            implementation = aead.implementation(),
            "Packets are sealed in batches"
        ),
    }
    let options = Options {
        gso: args.gso.into(),
        udp_gro: args.udp_gro.into(),
        aead,
        batch: args.batch.into(),
        clamp_mss: args.clamp_mss,
        is_up: false,
    };
    let tunnel = Tunnel::start(device.clone(), options)?;
    let server = Server::new(resources.listener, interface.clone(), tunnel.clone())
        .context("cannot serve the UAPI socket")?;

    let clock = async {
        wall_clock::follow(&tunnel).await;
        std::future::pending::<Infallible>().await
    };
    if let Some(parent) = parent.take() {
        parent.ready()?;
    }
    info!(interface, version = env!("CARGO_PKG_VERSION"), "ready");

    let exit = tokio::select! {
        never = server.serve() => match never {},
        never = clock => match never {},
        exit = tunnel.wait() => exit,
        () = link_monitor::follow(&device, &tunnel) => {
            stop(&tunnel, &mut interrupted).await;
            Exit::InterfaceDeleted
        }
        signal = interrupted.next() => {
            info!("ending on {signal}");
            stop(&tunnel, &mut interrupted).await
        }
        () = removed(resources.socket_file.as_ref()) => {
            info!("ending: the UAPI socket was removed");
            stop(&tunnel, &mut interrupted).await
        }
    };
    match exit {
        Exit::Stopped => Ok(()),
        Exit::InterfaceDeleted => {
            info!("ending: the interface was deleted");
            Ok(())
        }
        Exit::Failed(reason) => bail!("the tunnel failed: {reason}"),
    }
}

/// Stops the tunnel's threads. Waits until they end, [`STOP_TIME`] is over or a second signal arrives.
async fn stop(tunnel: &Tunnel, interrupted: &mut Interrupted) -> Exit {
    tunnel.stop();
    tokio::select! {
        exit = tunnel.wait() => exit,
        _ = interrupted.next() => Exit::Stopped,
        () = tokio::time::sleep(STOP_TIME) => {
            Exit::Failed(format!("its threads did not end within {STOP_TIME:?}"))
        }
    }
}

/// Waits until someone removes the socket file; forever if there is none or it cannot be watched.
async fn removed(file: Option<&SocketFile>) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    if let Err(error) = file.removed().await {
        warn!("cannot watch the UAPI socket for removal: {error}");
        std::future::pending().await
    }
    panics::let_it_end().await;
}

/// The signals that end the daemon.
struct Interrupted {
    terminate: Signal,
    interrupt: Signal,
}

impl Interrupted {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// The name of the next signal.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
