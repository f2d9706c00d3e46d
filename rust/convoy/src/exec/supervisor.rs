//! The supervisor: brings the tunnel up, keeps it while commands run, and leaves nothing behind.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use convoy_config::{Config, InterfaceName};
use convoy_netstack::namespace::Namespace;
use convoy_proto::{Outcome, config::DeviceUpdate};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, geteuid};
use tokio::{
    io::AsyncReadExt as _,
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{error, info, warn};

use super::{inside, meeting, run_directory::RunDirectory};
use crate::{
    check,
    cli::{DaemonArgs, ExecSupervisorArgs},
    client::{
        addresses::Addresses,
        desired::{configured_mark, whole},
        kept::{KeptEvent, KeptTunnel},
        places::Sockets,
        signals::{SignalEvent, Signals},
        sleep::Sleep,
        tunnel::{Process, TunnelEvent},
    },
    logging, panics,
    process::{bound_freed_memory, forbid_core_dumps, name_like_the_program},
    uapi::socket,
};

/// The most commands in one tunnel.
const MAX_COMMANDS: usize = 64;

/// How long what the last command has sent may take to arrive after its end; and how often to look.
const DELIVERY_TIME: Duration = Duration::from_secs(10);
const DELIVERY_PAUSE: Duration = Duration::from_millis(50);

/// Becomes the supervisor of a tunnel for the command at the other end of the standard input.
pub(crate) fn run(args: &ExecSupervisorArgs) -> anyhow::Result<()> {
    forbid_core_dumps();
    bound_freed_memory();
    name_like_the_program();
    panics::end_process(Vec::new());
    let mut command = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    let ours = command.try_clone()?;
    let outcome = supervise(args, ours);
    if let Err(error) = &outcome {
        // It has got the namespaces already, or it is gone, or it says why there are none.
        let _ = write!(command, "{error:#}");
        process::exit(1);
    }
    outcome
}

fn supervise(args: &ExecSupervisorArgs, command: StdUnixStream) -> anyhow::Result<()> {
    if logging::is_requested() {
        logging::init(args.daemon.log_format, None)?;
    }
    let config = read(&args.file)?;
    env::set_current_dir("/").context("cannot leave the working directory")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new()?;
        command.set_nonblocking(true)?;
        let command = UnixStream::from_std(command)?;
        let first = process_of(&command)?;
        let mut supervisor = tokio::select! {
            supervisor = Supervisor::bring_up(config, &args.daemon) => supervisor?,
            () = first.ended() => bail!("the command is gone"),
            signal = signals.next() => bail!("interrupted by {signal:?}"),
        };
        supervisor.admit(&command, first).await?;
        // From here on, the terminal is the command's.
        if !logging::is_requested() {
            dup2_stderr(File::options().write(true).open("/dev/null")?)?;
        }
        supervisor.serve(&mut signals).await;
        supervisor.take_down().await
    });
    runtime.shutdown_background();
    outcome
}

/// Reads a configuration, and tells what of it has no effect.
fn read(path: &Path) -> anyhow::Result<Config> {
    let config = check::read(path)?;
    for warning in inside::warnings(&config) {
        panics::say(&format!("convoy: warning: {warning}"));
    }
    Ok(config)
}

/// The process at the other end.
fn process_of(command: &UnixStream) -> anyhow::Result<Process> {
    let pid = command.peer_cred()?.pid().context("no process asks")?;
    Process::of_other(Pid::from_raw(pid)).context("cannot watch the command")
}

/// A tunnel and the commands in it.
#[derive(Debug)]
struct Supervisor {
    config: Config,
    mark: Option<u32>,
    addresses: Addresses,
    tunnel: KeptTunnel,
    namespace: Namespace,
    commands: JoinSet<()>,
    /// When the latest command ended.
    ended: Instant,
    listener: Listener,
}

impl Supervisor {
    /// Makes the namespaces, starts the tunnel and configures it. May be cancelled.
    async fn bring_up(config: Config, args: &DaemonArgs) -> anyhow::Result<Self> {
        let directory = RunDirectory::open()?;
        let name = config.name.clone();
        outlast_former(&directory.commands(&name), &name).await?;
        let listener = Listener::bind(&directory, &name)?;
        let settings = inside::settings(&config, args, directory.path());
        let namespace = Namespace::start(inside::holder(), &settings)?;
        for warning in namespace.warnings() {
            panics::say(&format!("convoy: warning: {warning}"));
        }
        let tun = namespace.tun().try_clone_to_owned()?;
        let mark = configured_mark(&config).filter(|_| geteuid().is_root());
        let tunnel = KeptTunnel::over(tun, &name, args, listener.others.clone()).await?;
        let mut supervisor = Self {
            addresses: Addresses::new(&config, mark),
            config,
            mark,
            tunnel,
            namespace,
            commands: JoinSet::new(),
            ended: Instant::now(),
            listener,
        };
        supervisor.follow_addresses().await;
        supervisor.addresses.settle().await;
        match supervisor.configure().await {
            Ok(()) => Ok(supervisor),
            Err(error) => {
                // What has failed matters more than what follows.
                drop(supervisor.take_down().await);
                Err(error)
            }
        }
    }

    /// Keeps the tunnel until the last command has ended and what it sent has arrived.
    async fn serve(&mut self, signals: &mut Signals) {
        let mut sleep = Sleep::new().await;
        loop {
            self.follow_addresses().await;
            tokio::select! {
                Some(_) = self.commands.join_next() => self.ended = Instant::now(),
                () = delivered(&self.namespace, self.ended), if self.commands.is_empty() => return,
                command = self.listener.socket.accept(), if !self.commands.is_empty() => {
                    self.on_command(command).await;
                }
                event = self.tunnel.next() => self.on_tunnel_event(event).await,
                () = self.addresses.next() => {}
                () = sleep.resumed() => self.addresses.network_changed(Instant::now()),
                signal = signals.next() => if let SignalEvent::End(signal) = signal {
                    info!("Ending: {signal}");
                    return;
                },
            }
        }
    }

    /// Ends everything inside, then the tunnel.
    async fn take_down(self) -> anyhow::Result<()> {
        drop(self.namespace);
        self.tunnel.stop().await.map(drop)
    }

    async fn on_command(
        &mut self,
        command: io::Result<(UnixStream, tokio::net::unix::SocketAddr)>,
    ) {
        let admitted = async {
            let (command, _) = command?;
            let process = process_of(&command)?;
            self.admit(&command, process).await
        };
        if let Err(error) = admitted.await {
            warn!("cannot admit a command: {error:#}");
        }
    }

    /// Hands a command the namespaces, and waits for its end from now on.
    async fn admit(&mut self, command: &UnixStream, process: Process) -> anyhow::Result<()> {
        if self.commands.len() >= MAX_COMMANDS {
            bail!("{MAX_COMMANDS} commands run already");
        }
        meeting::admit(command, self.namespace.spaces()).await?;
        self.commands.spawn(async move { process.ended().await });
        Ok(())
    }

    async fn on_tunnel_event(&mut self, event: KeptEvent) {
        let now = Instant::now();
        match event {
            KeptEvent::Tunnel(TunnelEvent::Handshake { peer, outcome }) => {
                let answered = outcome == Outcome::Answered;
                self.addresses.handshake(&peer, answered, now);
            }
            KeptEvent::Tunnel(TunnelEvent::Asks { id, .. }) => {
                if let Some(process) = self.tunnel.process()
                    && let Err(error) = process.answer(id, None).await
                {
                    warn!("cannot answer the tunnel: {error:#}");
                }
            }
            // Nothing of the host's depends on them; a process that ends is replaced, too.
            KeptEvent::Tunnel(TunnelEvent::Moved { .. } | TunnelEvent::Ended { .. }) => {}
            KeptEvent::Tunnel(TunnelEvent::Died) => self.tunnel.died(now),
            KeptEvent::StartDue => self.tunnel.start_again(),
            KeptEvent::Started => {
                if let Err(error) = self.configure().await {
                    error!("cannot configure the tunnel that was started again: {error:#}");
                }
            }
        }
    }

    /// Gives the tunnel process its whole configuration.
    async fn configure(&mut self) -> anyhow::Result<()> {
        let Some(process) = self.tunnel.process() else {
            return Ok(());
        };
        let addresses = &self.addresses;
        let update = DeviceUpdate {
            // Without a mark there is none to take away, which only root may.
            fwmark: self.mark,
            ..whole(&self.config, self.mark, |peer| addresses.of(peer))
        };
        process.set(&update).await?;
        process.follow(&addresses.followed()).await
    }

    /// Starts due look-ups, and tells the tunnel which addresses have changed.
    async fn follow_addresses(&mut self) {
        let changes = self.addresses.changes(Instant::now());
        let Some(process) = self.tunnel.process() else {
            return;
        };
        let told = async {
            if !changes.peers.is_empty() {
                let update = DeviceUpdate {
                    peers: changes.peers,
                    ..DeviceUpdate::default()
                };
                process.set(&update).await?;
            }
            match changes.handshakes.is_empty() {
                true => Ok(()),
                false => process.handshake(&changes.handshakes).await,
            }
        };
        if let Err(error) = told.await {
            // A tunnel that has died gets all addresses when it starts again.
            warn!("cannot give the tunnel new addresses: {error:#}");
        }
    }
}

/// Waits for the end of a supervisor whose commands have ended; fails if it has others.
async fn outlast_former(path: &Path, name: &InterfaceName) -> anyhow::Result<()> {
    let Ok(mut former) = UnixStream::connect(path).await else {
        return Ok(());
    };
    // With commands, it hands over its namespaces; without any, it accepts nobody, and the kernel hangs up at its end.
    match timeout(2 * DELIVERY_TIME, former.read_u8()).await {
        Ok(Err(_)) => Ok(()),
        Ok(Ok(_)) => {
            bail!("{name} runs already; join it with `convoy exec {name} -- COMMAND`")
        }
        Err(_) => bail!("the former tunnel {name} does not end"),
    }
}

/// Waits until the kernel has delivered what was sent before `ended`, as it would outside.
async fn delivered(namespace: &Namespace, ended: Instant) {
    // Datagrams, which nobody acknowledges, take less.
    sleep(DELIVERY_PAUSE).await;
    while ended.elapsed() < DELIVERY_TIME && namespace.is_sending() {
        sleep(DELIVERY_PAUSE).await;
    }
}

/// Where further commands join; dropping it removes this socket and those of the tunnel process.
#[derive(Debug)]
struct Listener {
    socket: UnixListener,
    path: PathBuf,
    others: Sockets,
}

impl Listener {
    fn bind(directory: &RunDirectory, name: &InterfaceName) -> anyhow::Result<Self> {
        let path = directory.commands(name);
        let (socket, _) = socket::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixListener::from_std(socket)?,
            path,
            others: directory.sockets(name),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.others.remove();
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}
