//! The daemon, and the tunnel process of a client: carries the packets of one interface, from opening the device to
//! shutdown.
//!
//! 1. [`start`] opens the device and the sockets, gives up all privileges that it no longer needs, and runs the tunnel.
//!    [`start_supervised`] gets them from a supervisor.
//! 2. [`supervised`] is its side of the supervisor that has started it, with what the two tell each other.
//! 3. [`capture`] records its packets; [`places`] are the files by which others find it.
//!
//! The program calls it, as do the crates that start or query a tunnel. It changes no route, rule, name server or
//! firewall of the host, reads no configuration file, and opens no file and executes no program once it is ready.

pub mod args;
mod attachable;
pub mod capture;
mod confine;
mod link_monitor;
pub mod places;
mod resources;
pub mod supervised;
pub mod wall_clock;

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use convoy_aead::{Aead, WhyRing};
use convoy_process::{
    background::{self, Parent},
    bound_freed_memory, forbid_core_dumps, logging,
    own_files::OwnFiles,
    panics,
    socket::SocketFile,
};
use convoy_proto::config::Snapshot;
use convoy_report::Report;
use convoy_tun::Device;
use convoy_tunnel::{Exit, Options, Tunnel};
use convoy_uapi::{Figures, Reporter, Server};
use nix::sys::signal::{SIGINT, SIGTERM, SigSet};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, info, warn};

use args::{DaemonArgs, DeviceName, TunnelOptions};
use resources::{Resources, Watched};
use supervised::{
    Consenting, Supervised,
    privileges::SupervisorsPrivileges,
    start::{HandedOver, Start},
};

/// The environment variables of the descriptors that a daemon takes over.
pub const HANDED_OVER: [&str; 2] = ["WG_TUN_FD", "WG_UAPI_FD"];

/// Time limit for the threads to end after they are asked to.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Serves a daemon's figures beyond the UAPI, by options of its command line.
pub trait Metrics: Args {
    /// A listening socket that is not served yet.
    type Listening;

    /// Reports an interface's snapshot.
    fn report(interface: &str, snapshot: &Snapshot) -> Report;

    /// Listens where the command line says, while the process still may; `None` without such an option.
    fn listen(&self) -> anyhow::Result<Option<Self::Listening>>;

    /// Returns the file of a Unix socket, which is removed with the daemon's.
    fn file(listening: &Self::Listening) -> Option<&SocketFile>;

    /// Answers requests on the socket with the daemon's reports.
    fn serve(
        listening: Self::Listening,
        reporter: Arc<Reporter<Consenting<Tunnel>>>,
    ) -> impl Future<Output = anyhow::Result<Infallible>>;
}

/// Starts the daemon for `interface` in the background, or runs it here until it ends.
pub fn start<M: Metrics>(interface: &DeviceName, args: &DaemonArgs<M>) -> anyhow::Result<()> {
    let parent = Parent::detach()?;
    if parent.is_none() && !args.foreground {
        return background::start(background::Output::Log);
    }
    log_and_run(interface, &args.options, Some(&args.metrics), None, parent)
}

/// Becomes the process of a supervisor's tunnel `interface`, and runs it until it ends. Reports to the supervisor when
/// it is ready, or why it is not.
pub fn start_supervised<M: Metrics>(
    interface: &DeviceName,
    start: &Start,
    handed_over: HandedOver,
    supervisor: Parent,
) -> anyhow::Result<()> {
    let given = Some((start, handed_over));
    // The supervisor serves its metrics.
    log_and_run::<M>(interface, &start.options, None, given, Some(supervisor))
}

fn log_and_run<M: Metrics>(
    interface: &DeviceName,
    options: &TunnelOptions,
    metrics: Option<&M>,
    given: Option<(&Start, HandedOver)>,
    mut parent: Option<Parent>,
) -> anyhow::Result<()> {
    let outcome = logging::init(options.log_format, Some(interface.as_str()))
        .and_then(|()| run(interface, options, metrics, given, &mut parent));
    if let (Err(error), Some(parent)) = (&outcome, parent) {
        parent.fail(error);
    }
    outcome
}

fn run<M: Metrics>(
    interface: &DeviceName,
    options: &TunnelOptions,
    metrics: Option<&M>,
    given: Option<(&Start, HandedOver)>,
    parent: &mut Option<Parent>,
) -> anyhow::Result<()> {
    forbid_core_dumps();
    bound_freed_memory();
    Interrupted::postpone()?;
    let mut files = RemovedAtEnd::default();
    panics::end_process(OwnFiles::default());
    let metrics = metrics.map(M::listen).transpose()?.flatten();
    let metrics_file = metrics.as_ref().and_then(M::file);
    files.0.add(metrics_file.cloned());
    let resources = match given {
        Some((start, handed_over)) => Resources::handed_over(interface, start, handed_over)?,
        None => Resources::acquire(interface, options.tun_offload)?,
    };
    files.0.add(resources.own_socket_file());
    // Before there is another thread.
    files.0.hand_over(confine::confine_to_removing)?;
    panics::end_process(files.0.clone());
    match resources.supervision {
        Some(_) => confine::confine_supervised()?,
        None => confine::confine()?,
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the main thread's runtime")?;
    let outcome = runtime.block_on(serve::<M>(resources, metrics, options, parent));
    // Do not wait for tasks that wait for the data path or compute keys.
    runtime.shutdown_background();
    outcome
}

/// The socket files, while this process is there.
#[derive(Default)]
struct RemovedAtEnd(OwnFiles);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Runs the tunnel until something ends it.
async fn serve<M: Metrics>(
    resources: Resources,
    metrics: Option<M::Listening>,
    args: &TunnelOptions,
    parent: &mut Option<Parent>,
) -> anyhow::Result<()> {
    let interface = resources.interface;
    let device = resources.device;
    let mut interrupted = Interrupted::new()?;
    let supervision = resources.supervision;
    let mut options = Options {
        awaits_configuration: supervision.is_some(),
        has_outer: supervision.as_ref().is_some_and(|it| it.has_outer),
        ..options(args)
    };
    let privileges = SupervisorsPrivileges::new();
    if supervision.is_some() {
        options.privileged = Arc::new(privileges.clone());
    }
    let tunnel = Tunnel::start(device.clone(), options)?;
    let (mut supervised, questions) = match supervision {
        Some(supervision) => {
            let (ours, questions) =
                Supervised::new(supervision, tunnel.clone(), device.clone(), privileges)?;
            (Some(ours), Some(questions))
        }
        None => (None, None),
    };
    let control = Consenting {
        tunnel: tunnel.clone(),
        questions,
    };
    let figures = Figures {
        report: M::report,
        queue_drops: link_monitor::queue_drops,
    };
    let index = resources.watched.index_of(&interface);
    let reporter = Arc::new(Reporter::new(interface.clone(), index, control, figures));
    let server = Server::new(resources.listener, Arc::clone(&reporter))
        .context("cannot serve the UAPI socket")?;
    let metrics = serve_metrics::<M>(metrics, reporter);

    let clock = async {
        wall_clock::follow(&tunnel).await;
        std::future::pending::<Infallible>().await
    };
    if let Some(parent) = parent.take() {
        parent.ready()?;
    }
    info!(version = env!("CARGO_PKG_VERSION"), "ready");

    let ending = tokio::select! {
        never = server.serve() => match never {},
        never = clock => match never {},
        never = logging::live::keep() => match never {},
        failed = metrics => return failed.map(|never| match never {}),
        exit = tunnel.wait() => Ending::Ended(exit),
        never = attachable::on_request() => match never {},
        () = follow_link(&device, &tunnel, resources.watched) => Ending::Deleted,
        signal = interrupted.next() => Ending::Asked(signal.to_owned()),
        () = removed(resources.socket_file.as_ref()) => {
            Ending::Asked("the UAPI socket was removed".to_owned())
        }
        () = stopped(supervised.as_mut()) => {
            Ending::Asked("the supervisor stops the tunnel".to_owned())
        }
    };
    if let (Some(supervised), Some(reason)) = (&mut supervised, ending.wish()) {
        supervised.say_ended(reason).await;
    }
    end(ending, &tunnel, &mut interrupted).await
}

/// Serves metrics if the command line says where; otherwise waits for ever.
async fn serve_metrics<M: Metrics>(
    listening: Option<M::Listening>,
    reporter: Arc<Reporter<Consenting<Tunnel>>>,
) -> anyhow::Result<Infallible> {
    match listening {
        Some(listening) => M::serve(listening, reporter).await,
        None => std::future::pending().await,
    }
}

/// Returns the settings for the tunnel's threads.
fn options(args: &TunnelOptions) -> Options {
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
    Options {
        gso: args.gso,
        udp_gro: args.udp_gro,
        aead,
        batch: args.batch.into(),
        clamp_mss: args.clamp_mss,
        is_up: false,
        ..Options::default()
    }
}

/// Passes every change of the link to the tunnel; returns when the interface is gone.
async fn follow_link(device: &Device, tunnel: &Tunnel, watched: Watched) {
    match watched {
        Watched::Not { mtu } => {
            tunnel.set_mtu(mtu);
            link_monitor::assume_up(tunnel).await;
            std::future::pending().await
        }
        Watched::From { namespace } => link_monitor::follow(device, tunnel, namespace).await,
    }
}

/// Waits until a supervisor stops the tunnel; forever if there is never one.
async fn stopped(supervised: Option<&mut Supervised<Tunnel>>) {
    match supervised {
        Some(supervised) => supervised.serve().await,
        None => std::future::pending().await,
    }
}

/// Reason why the daemon ends.
enum Ending {
    /// The tunnel's threads have ended.
    Ended(Exit),
    /// The interface is gone.
    Deleted,
    /// Requested; contains who asked and why.
    Asked(String),
}

impl Ending {
    /// Returns the reason if the end was requested; `None` if the tunnel failed.
    fn wish(&self) -> Option<&str> {
        match self {
            Self::Ended(Exit::Failed(_)) => None,
            Self::Ended(Exit::Stopped) => Some("it was stopped"),
            Self::Ended(Exit::InterfaceDeleted) | Self::Deleted => {
                Some("the interface was deleted")
            }
            Self::Asked(reason) => Some(reason),
        }
    }
}

async fn end(ending: Ending, tunnel: &Tunnel, interrupted: &mut Interrupted) -> anyhow::Result<()> {
    let exit = match ending {
        Ending::Ended(exit) => exit,
        Ending::Deleted => {
            stop(tunnel, interrupted).await;
            Exit::InterfaceDeleted
        }
        Ending::Asked(reason) => {
            info!("ending: {reason}");
            stop(tunnel, interrupted).await
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
    /// Makes the signals wait until [`Interrupted::new`]: they would end the process before it can remove its sockets.
    fn postpone() -> anyhow::Result<()> {
        let postponed = Self::signals().thread_block();
        postponed.context("cannot postpone signals")
    }

    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let interrupted = Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        };
        let admitted = Self::signals().thread_unblock();
        admitted.context("cannot admit signals")?;
        Ok(interrupted)
    }

    fn signals() -> SigSet {
        [SIGTERM, SIGINT].into_iter().collect()
    }

    /// Waits for the next signal and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
