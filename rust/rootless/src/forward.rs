//! `convoy forward`: relays ports of this host, without a tunnel. `convoy import`: makes its file from rinetd's.

pub(crate) mod args;
pub(crate) mod counters;
pub(crate) mod rules;

use std::{convert::Infallible, sync::Arc};

use anyhow::{Context, bail};
use convoy_config::{Forwarding, Listener, import_rinetd, read_forwarding};
use convoy_desired::reading::show;
use convoy_forward::{Access, Forwarder, Limits, MOST_LOOKUPS};
use convoy_network::{
    Guarded, Host, Kernel, Network,
    own::Own,
    policy::Policy,
    relay::{DEFAULT_BUFFER, Relay},
    translators::Translators,
};
use convoy_process::{self as process, logging, own_files::OwnFiles, panics, print};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

pub use args::{ForwardArgs, ImportArgs};

/// Descriptors reserved for everything but connections and flows.
const SPARE_DESCRIPTORS: u64 = 256;

/// Runs the forwarder that a file describes until a signal ends it.
pub fn run(args: &ForwardArgs) -> anyhow::Result<()> {
    let forwarding = match read_forwarding(&args.file) {
        Ok((forwarding, warnings)) => {
            show(&warnings);
            forwarding
        }
        Err(report) => {
            show(&report);
            bail!("{} is not valid", args.file.display());
        }
    };
    logging::init(args.log_format, None)?;
    process::forbid_core_dumps();
    panics::end_process(OwnFiles::default());
    let limits = limits()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(MOST_LOOKUPS)
        .enable_all()
        .build()
        .context("cannot start the threads of connections")?;
    let outcome = runtime.block_on(serve(args, forwarding, limits));
    // A name may still be looked up.
    runtime.shutdown_background();
    outcome
}

/// Prints a forwarder's file.
pub fn import(args: &ImportArgs) -> anyhow::Result<()> {
    match import_rinetd(&args.file) {
        Ok((imported, warnings)) => {
            show(&warnings);
            print(&imported.0)
        }
        Err(report) => {
            show(&report);
            bail!("{} cannot be imported", args.file.display());
        }
    }
}

/// Returns the number of descriptors for connections and flows, after raising the process's limit.
pub(crate) fn free_descriptors() -> anyhow::Result<usize> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // If that fails, there is room for fewer.
    let descriptors = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    let free = descriptors
        .saturating_sub(SPARE_DESCRIPTORS)
        .max(SPARE_DESCRIPTORS);
    Ok(free as usize)
}

/// Returns the number of connections that there are descriptors for.
pub(crate) fn limits() -> anyhow::Result<Limits> {
    let free = free_descriptors()?;
    let most = Limits::default();
    Ok(Limits {
        // Two sockets each, and as much again for pipes and flows.
        connections: most.connections.min(free / 4),
        flows: most.flows.min(free / 8),
    })
}

/// Returns the targets that clients of proxies may reach.
struct Proxies {
    of_all: Access,
    own: Own,
    translators: Translators,
    is_trusting: bool,
}

impl Proxies {
    async fn of(forwarding: &Forwarding) -> anyhow::Result<Self> {
        let is_trusting = rules::are_local(forwarding);
        let needs_own = !is_trusting && forwarding.listeners.iter().any(|it| it.offer.is_proxy());
        let own = match needs_own {
            true => Own::follow().await.context(
                "cannot follow the addresses of this host, which proxies must not open to others",
            )?,
            false => Own::default(),
        };
        Ok(Self {
            of_all: rules::access(&forwarding.targets),
            translators: Translators::of_host(own.clone()),
            own,
            is_trusting,
        })
    }

    /// Returns the network of a listener's targets.
    fn far(&self, listener: &Listener, host: &Arc<dyn Network>) -> Arc<dyn Network> {
        if !listener.offer.is_proxy() {
            return Arc::clone(host);
        }
        let mut lists = rules::access(&listener.targets);
        lists.allow.extend(&self.of_all.allow);
        lists.deny.extend(&self.of_all.deny);
        Arc::new(Guarded {
            network: Arc::clone(host),
            policy: Policy {
                allow: lists.allow,
                deny: lists.deny,
                own: self.own.clone(),
                translators: self.translators.clone(),
            },
            is_trusting: self.is_trusting,
        })
    }
}

async fn serve(args: &ForwardArgs, forwarding: Forwarding, limits: Limits) -> anyhow::Result<()> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut wish = listen(SignalKind::user_defined1())?;
    let buffer = args.buffer.or(forwarding.buffer).unwrap_or(DEFAULT_BUFFER);
    let mut forwarder = Forwarder::new(Relay::new(buffer, args.relay.into()), limits);
    let host: Arc<dyn Network> = Arc::new(Kernel(Host));
    let proxies = Proxies::of(&forwarding).await?;
    let targets: Vec<_> = forwarding
        .listeners
        .iter()
        .map(|it| proxies.far(it, &host))
        .collect();
    for (rule, far) in rules::of(forwarding).into_iter().zip(targets) {
        let running = forwarder.add(rule, &host, &far).await?;
        info!("forwarding {running}");
    }
    info!(
        connections = limits.connections,
        flows = limits.flows,
        "ready"
    );
    let tell = async {
        loop {
            wish.recv().await;
            counters::log(&forwarder);
        }
    };
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        never = tell => { let never: Infallible = never; match never {} }
    };
    counters::log(&forwarder);
    info!("ended by {name}");
    Ok(())
}
